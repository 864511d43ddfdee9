#include "agent/fio/tolerant_json.hpp"

#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace xblk::fio {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 32;

class Builder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = fmt::format("not JSON at byte {}", position);
    return false;
  }

  TolerantJson result;
  std::string error;

 private:
  struct Open {
    json* node;
    std::string key;
    std::set<std::string> repeated;  // keys whose value has become an array of values
  };

  json* place(json value) {
    if (open_.empty()) {
      result.value = std::move(value);
      return &result.value;
    }
    Open& parent = open_.back();
    if (parent.node->is_array()) {
      parent.node->push_back(std::move(value));
      return &parent.node->back();
    }
    const auto existing = parent.node->find(parent.key);
    if (existing == parent.node->end()) return &((*parent.node)[parent.key] = std::move(value));
    result.duplicate_keys = true;
    if (parent.repeated.insert(parent.key).second) {
      json values = json::array();
      values.push_back(std::move(*existing));
      *existing = std::move(values);
    }
    existing->push_back(std::move(value));
    return &existing->back();
  }

  bool add(json value) {
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    if (open_.size() == kMaxDepth) {
      error = fmt::format("nested deeper than {} levels", kMaxDepth);
      return false;
    }
    json* node = place(std::move(value));
    open_.push_back({node, {}, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Open> open_;
};

}  // namespace

Result<TolerantJson> parse_tolerant(const std::string& text) {
  Builder builder;
  if (!json::sax_parse(text, &builder)) return fail(EINVAL, builder.error);
  return std::move(builder.result);
}

}  // namespace xblk::fio
