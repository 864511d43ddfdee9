// Reads a JSON document that somebody else wrote. A cursor knows its JSON pointer (RFC 6901); the first mistake is kept
// in the shared JsonErrors, later reads give neutral values, and the caller checks once at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace xblk::report {

struct JsonErrors {
  std::optional<std::string> first;  // "/points/0/iops: expected a number, found a string"
};

class JsonCursor {
 public:
  using Json = nlohmann::ordered_json;
  JsonCursor(const Json& value, JsonErrors& errors) : value_(&value), errors_(&errors) {}

  [[nodiscard]] JsonCursor member(std::string_view name) const;                          // an absent member is an error
  [[nodiscard]] std::optional<JsonCursor> optional_member(std::string_view name) const;  // absent or null: nullopt
  [[nodiscard]] std::vector<JsonCursor> elements() const;
  [[nodiscard]] std::vector<std::pair<std::string, JsonCursor>> members() const;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::uint64_t count() const;  // an integer >= 0
  [[nodiscard]] Json object() const;

  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  void error(const std::string& what) const;

 private:
  JsonCursor(const Json& value, JsonErrors& errors, std::string pointer)
      : value_(&value), errors_(&errors), pointer_(std::move(pointer)) {}
  [[nodiscard]] bool expect(bool holds, std::string_view wanted) const;

  const Json* value_;
  JsonErrors* errors_;
  std::string pointer_;
};

}  // namespace xblk::report
