#include "agent/cli/parameter_list.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent/plan/parameters.hpp"

namespace xblk::cli {
namespace {

using plan::Parameter;
using plan::ParameterTarget;

bool is_policy(const Parameter& parameter) {
  return parameter.target != ParameterTarget::fio && parameter.target != ParameterTarget::guests;
}

std::string default_of(const Parameter& parameter) {
  const bool differs = parameter.target == ParameterTarget::both_ends && parameter.back_fallback != parameter.fallback;
  return differs ? fmt::format("{}, of the back end alone {}", parameter.fallback, parameter.back_fallback)
                 : parameter.fallback;
}

std::string text_of(const Parameter& parameter) {
  return fmt::format("{}  ({})\n    {}\n    {}; default {}\n", parameter.name, to_string(parameter.target),
                     parameter.help, plan::allowed_values(parameter), default_of(parameter));
}

const std::vector<std::string>& presets() {
  static const std::vector<std::string> kPresets = plan::find_parameter(std::string(plan::kPresetParameter))->words;
  return kPresets;
}

// What a preset has otherwise than the default.
std::vector<std::pair<std::string, std::string>> settings_of(const std::string& preset) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ParameterTarget end : {ParameterTarget::front, ParameterTarget::back}) {
    const auto plain = plan::preset_policies(end, std::string(plan::kNoPreset));
    for (const auto& [name, value] : plan::preset_policies(end, preset)) {
      if (name == plan::kPresetParameter || plain.at(name) == value) continue;
      out.emplace_back(fmt::format("{}.{}", to_string(end), name), value);
    }
  }
  return out;
}

std::string presets_text() {
  std::string out;
  for (const std::string& preset : presets()) {
    if (preset == plan::kNoPreset) continue;
    out += preset + "\n   ";
    for (const auto& [name, value] : settings_of(preset)) out += fmt::format(" {}={}", name, value);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string parameter_list() {
  std::string policies;
  std::string load;
  for (const Parameter& parameter : plan::parameters()) (is_policy(parameter) ? policies : load) += text_of(parameter);
  return "Policies of the drivers. A policy of both ends is set at one of them as 'front.NAME' or 'back.NAME'.\n\n" +
         policies + "\nGuests and load; any other option of fio as 'fio.OPTION'.\n\n" + load +
         "\nPresets: what each has otherwise than the default.\n\n" + presets_text();
}

report::Json parameter_list_json() {
  report::Json parameters = report::Json::array();
  for (const Parameter& parameter : plan::parameters()) {
    parameters.push_back({{"name", parameter.name},
                          {"of", to_string(parameter.target)},
                          {"values", plan::allowed_values(parameter)},
                          {"words", parameter.words},
                          {"default", parameter.fallback},
                          {"help", parameter.help}});
  }
  report::Json described = report::Json::object();
  for (const std::string& preset : presets()) {
    described[preset] = report::Json::object();
    for (const auto& [name, value] : settings_of(preset)) described[preset][name] = value;
  }
  return {{"parameters", std::move(parameters)}, {"presets", std::move(described)}};
}

}  // namespace xblk::cli
