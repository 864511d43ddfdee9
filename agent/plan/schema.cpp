#include "agent/plan/schema.hpp"

#include <algorithm>

#include "agent/plan/parameters.hpp"

namespace xblk::plan {
namespace {

using Json = nlohmann::ordered_json;

// Everything but the parameters.
constexpr const char* kFrame = R"json({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "xblk profile",
  "description": "For editors: completion and first checks. xblk itself checks more, and names line and column. Made by 'xblk plan --schema'.",
  "type": "object",
  "required": ["name", "store"],
  "additionalProperties": false,
  "properties": {
    "name": { "type": "string", "pattern": "^[a-z0-9-]{1,64}$" },
    "description": { "type": "string" },
    "platform": { "enum": ["emu", "xen", "model"], "default": "emu" },
    "store": { "type": "string", "pattern": "^(throttled:[^:]+:[^:]+:)*((null|ram):[0-9]+[A-Za-z]*|file:([0-9]+[A-Za-z]*:)?/.*)$" },
    "fixed": { "$ref": "#/definitions/selection" },
    "matrix": { "$ref": "#/definitions/selection" },
    "include": { "type": "array", "items": { "$ref": "#/definitions/selection" } },
    "exclude": { "type": "array", "items": { "$ref": "#/definitions/selection" } },
    "fio": {
      "type": "object",
      "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" },
      "additionalProperties": { "type": ["string", "number", "boolean"] }
    },
    "repeats": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 3 },
    "order": { "enum": ["interleaved", "sequential"], "default": "interleaved" },
    "seed": { "type": "integer", "minimum": 0, "default": 0 }
  },
  "definitions": {
    "text": {
      "anyOf": [
        { "type": ["string", "number", "boolean"] },
        { "type": "array", "minItems": 1, "items": { "type": ["string", "number", "boolean"] } }
      ]
    },
    "selection": {
      "type": "object",
      "additionalProperties": false,
      "properties": {},
      "patternProperties": {
        "^(front|back)\\.[a-z_-]+$": { "$ref": "#/definitions/text" },
        "^fio\\.[A-Za-z0-9_-]+$": { "$ref": "#/definitions/text" },
        "^[a-z]+(_[a-z]+)+$": { "$ref": "#/definitions/text" }
      }
    }
  }
})json";

Json words_schema(const std::vector<std::string>& words) {
  Json allowed = words;
  // A YAML reader of version 1.1 takes a plain on or off for a boolean; xblk takes it for the word.
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  if (has("on")) allowed.push_back(true);
  if (has("off")) allowed.push_back(false);
  return {{"enum", std::move(allowed)}};
}

Json one_value(const Parameter& parameter) {
  switch (parameter.kind) {
    case ParameterKind::boolean:
      return {{"enum", {true, false, 0, 1, "on", "off", "yes", "no"}}};
    case ParameterKind::count:
      return {{"type", "integer"}, {"minimum", parameter.min}, {"maximum", parameter.max}};
    case ParameterKind::word:
      return words_schema(parameter.words);
    case ParameterKind::size:
    case ParameterKind::text:
      break;
  }
  return {{"type", {"string", "number"}}};
}

Json schema_of(const Parameter& parameter) {
  const Json one = one_value(parameter);
  const Json list = {{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}, {"items", one}};
  return {{"description",
           parameter.help + " (" + std::string(to_string(parameter.target)) + "; default " + parameter.fallback + ")"},
          {"anyOf", Json::array({one, list})}};
}

}  // namespace

Json profile_schema() {
  Json schema = Json::parse(kFrame);
  Json& properties = schema["definitions"]["selection"]["properties"];
  for (const Parameter& parameter : parameters()) properties[parameter.name] = schema_of(parameter);
  return schema;
}

}  // namespace xblk::plan
