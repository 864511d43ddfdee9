#include "agent/plan/parameters.hpp"
#include "drivers/base/check.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/policy_presets.hpp"

namespace xblk::plan {
namespace {

ParameterTarget target_of(const blkif::PolicyKey& key) {
  const bool front = key.applies_to(blkif::PolicyEnd::front);
  const bool back = key.applies_to(blkif::PolicyEnd::back);
  if (front && back) return ParameterTarget::both_ends;
  if (front) return ParameterTarget::front;
  return back ? ParameterTarget::back : ParameterTarget::host;
}

ParameterKind kind_of(const blkif::PolicyKey& key) {
  switch (key.kind) {
    case blkif::PolicyKind::boolean:
      return ParameterKind::boolean;
    case blkif::PolicyKind::integer:
      return ParameterKind::count;
    case blkif::PolicyKind::words:
      return ParameterKind::word;
  }
  XBLK_CHECK(false, "not a PolicyKind");
}

std::string canonical(const blkif::PolicyKey& key, std::uint64_t value) {
  if (key.kind == blkif::PolicyKind::boolean) return value != 0 ? "on" : "off";
  return blkif::print_policy_value(key, value);
}

}  // namespace

std::vector<Parameter> policy_parameters() {
  std::vector<Parameter> out;
  for (const blkif::PolicyKey& key : blkif::policy_keys()) {
    Parameter parameter;
    parameter.name = key.name;
    parameter.kind = kind_of(key);
    parameter.target = target_of(key);
    parameter.min = key.min;
    parameter.max = key.max;
    parameter.words.assign(key.words.begin(), key.words.end());
    const auto own_end = parameter.target == ParameterTarget::back   ? blkif::PolicyEnd::back
                         : parameter.target == ParameterTarget::host ? blkif::PolicyEnd::host
                                                                     : blkif::PolicyEnd::front;
    parameter.fallback = canonical(key, key.default_of(own_end));
    if (key.applies_to(blkif::PolicyEnd::back)) {
      parameter.back_fallback = canonical(key, key.default_of(blkif::PolicyEnd::back));
    }
    parameter.help = key.help;
    out.push_back(std::move(parameter));
  }
  return out;
}

std::string policy_text(const Parameter& policy, const std::string& canonical) {
  if (policy.kind != ParameterKind::boolean) return canonical;
  return canonical == "on" ? "1" : "0";
}

std::map<std::string, std::string> preset_policies(ParameterTarget end, const std::string& preset) {
  const auto* key = blkif::find_policy(kPresetParameter);
  XBLK_CHECK(key != nullptr, "the table has a policy 'preset'");
  const auto value = blkif::parse_policy_value(*key, preset);
  XBLK_CHECK(value, "a canonical value is a value");
  const auto known = static_cast<blkif::Preset>(*value);
  if (end == ParameterTarget::front) return blkif::to_keys(blkif::preset_policy<blkif::FrontPolicy>(known));
  return blkif::to_keys(blkif::preset_policy<blkif::BackPolicy>(known));
}

}  // namespace xblk::plan
