#include "agent/report/json_cursor.hpp"

namespace xblk::report {
namespace {

const nlohmann::ordered_json kNull;

// RFC 6901: '~' and '/' inside a name are written ~0 and ~1.
std::string escape_pointer(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void JsonCursor::error(const std::string& what) const {
  if (!errors_->first) errors_->first = (pointer_.empty() ? "/" : pointer_) + ": " + what;
}

bool JsonCursor::expect(bool holds, std::string_view wanted) const {
  if (!holds) error("expected " + std::string(wanted) + ", found " + value_->type_name());
  return holds;
}

std::optional<JsonCursor> JsonCursor::optional_member(std::string_view name) const {
  if (!expect(value_->is_object(), "an object")) return std::nullopt;
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonCursor(*found, *errors_, pointer_ + "/" + escape_pointer(name));
}

JsonCursor JsonCursor::member(std::string_view name) const {
  if (auto found = optional_member(name)) return *found;
  if (value_->is_object()) error("'" + std::string(name) + "' is missing");
  return {kNull, *errors_, pointer_ + "/" + escape_pointer(name)};
}

std::vector<JsonCursor> JsonCursor::elements() const {
  std::vector<JsonCursor> out;
  if (!expect(value_->is_array(), "an array")) return out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    out.push_back({(*value_)[i], *errors_, pointer_ + "/" + std::to_string(i)});
  }
  return out;
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::members() const {
  std::vector<std::pair<std::string, JsonCursor>> out;
  if (!expect(value_->is_object(), "an object")) return out;
  for (const auto& [name, value] : value_->items()) {
    out.emplace_back(name, JsonCursor(value, *errors_, pointer_ + "/" + escape_pointer(name)));
  }
  return out;
}

std::string JsonCursor::text() const {
  return expect(value_->is_string(), "a string") ? value_->get<std::string>() : std::string();
}

double JsonCursor::number() const {
  return expect(value_->is_number(), "a number") ? value_->get<double>() : 0;
}

bool JsonCursor::flag() const {
  return expect(value_->is_boolean(), "true or false") && value_->get<bool>();
}

std::uint64_t JsonCursor::count() const {
  return expect(value_->is_number_unsigned(), "an integer of at least 0") ? value_->get<std::uint64_t>() : 0;
}

JsonCursor::Json JsonCursor::object() const {
  return expect(value_->is_object(), "an object") ? *value_ : Json::object();
}

}  // namespace xblk::report
