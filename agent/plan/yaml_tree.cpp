#include "agent/plan/yaml_tree.hpp"

#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace xblk::plan {
namespace {

// Builds the tree from the parser's events. A violation of our bounds is thrown as the parser's own exception, because
// that is the only way out of its call, and caught with the parser's errors in parse_yaml.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) throw YAML::ParserException(mark, "a profile is one document; remove the second '---'");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_extras(mark, "", anchor);
    add(make(YamlNode::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_extras(mark, tag, anchor);
    YamlNode node = make(YamlNode::Kind::scalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

  [[nodiscard]] YamlNode take_root() { return std::move(root_); }

 private:
  struct Open {
    YamlNode node;
    YamlNode key;  // of a map: the key that waits for its value
    bool has_key = false;
  };

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    if (++nodes_ > kYamlNodesMax) throw YAML::ParserException(mark, "too many values for a profile");
    YamlNode node;
    node.kind = kind;
    node.mark = {mark.line + 1, mark.column + 1};
    return node;
  }

  static void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) throw YAML::ParserException(mark, "anchors are not supported");
    // yaml-cpp reports "?" for a plain and "!" for a quoted or explicitly non-specific value.
    if (!tag.empty() && tag != "?" && tag != "!") throw YAML::ParserException(mark, "tags are not supported: " + tag);
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_extras(mark, tag, anchor);
    if (stack_.size() >= kYamlDepthMax) throw YAML::ParserException(mark, "nested too deeply for a profile");
    stack_.push_back({make(kind, mark), {}, false});
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::sequence) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.node.entries.push_back({std::move(parent.key), std::move(node)});
      parent.has_key = false;
    } else {
      accept_key(parent, std::move(node));
    }
  }

  static void accept_key(Open& map, YamlNode key) {
    const YAML::Mark mark = [&] {
      YAML::Mark m;
      m.line = key.mark.line - 1;
      m.column = key.mark.column - 1;
      return m;
    }();
    if (key.kind != YamlNode::Kind::scalar) throw YAML::ParserException(mark, "a key must be a word");
    for (const auto& [other, unused] : map.node.entries) {
      if (other.text != key.text) continue;
      throw YAML::ParserException(
          mark, "key '" + key.text + "' is given twice; the first is on line " + std::to_string(other.mark.line));
    }
    map.key = std::move(key);
    map.has_key = true;
  }

  YamlNode root_;
  std::vector<Open> stack_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

}  // namespace

std::string_view to_string(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return "a single value";
    case YamlNode::Kind::sequence:
      return "a list";
    case YamlNode::Kind::map:
      return "a mapping";
  }
  return "nothing";
}

Error error_at(const std::string& source, Mark mark, const std::string& message) {
  return {EINVAL, source + ":" + std::to_string(mark.line) + ":" + std::to_string(mark.column) + ": " + message};
}

Result<YamlNode> parse_yaml(const std::string& text, const std::string& source) {
  if (text.size() > kYamlBytesMax) return fail(EFBIG, source + ": larger than 64 KiB, which no profile is");
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder;
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take_root();
  } catch (const YAML::Exception& error) {
    const Mark mark = error.mark.is_null() ? Mark{} : Mark{error.mark.line + 1, error.mark.column + 1};
    return tl::unexpected(error_at(source, mark, error.msg));
  }
}

}  // namespace xblk::plan
