#include "agent/fio/text.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

namespace xblk::fio {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Bytes of the well-formed UTF-8 sequence at the front, 0 when there is none (RFC 3629: no overlong, no surrogate).
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  if (byte(0) < 0x80) return 1;
  std::size_t length = 0;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) length = 2;
  if (byte(0) >= 0xE0 && byte(0) <= 0xEF) length = 3;
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4) length = 4;
  if (length == 0 || s.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(s[i])) return 0;
  }
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

// Where the document that begins at the front ends (one past its '}'), or where it turns out to be cut off.
struct Extent {
  std::size_t size;
  bool complete;
};

Extent document_extent(std::string_view s) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (c == '{' && i > 0 && s[i - 1] == '\n') return {i, false};
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) return {i + 1, true};
  }
  return {s.size(), false};
}

// Repairs one document, byte by byte.
class Repairer {
 public:
  explicit Repairer(std::string_view in) : in_(in) { out_.text.reserve(in.size()); }

  RepairedDocument run() {
    while (at_ < in_.size()) {
      if (in_string_) {
        string_byte();
      } else {
        structure_byte();
      }
    }
    return std::move(out_);
  }

 private:
  void take(std::size_t n) {
    out_.text += in_.substr(at_, n);
    at_ += n;
  }

  void string_byte() {
    const auto byte = static_cast<unsigned char>(in_[at_]);
    if (byte == '\\') return take(std::min<std::size_t>(escape_length(), in_.size() - at_));
    if (byte == '"') in_string_ = false;
    if (byte < 0x20) {
      out_.text += fmt::format("\\u{:04x}", byte);
      out_.control_characters = true;
      ++at_;
      return;
    }
    const std::size_t length = utf8_length(in_.substr(at_));
    if (length != 0) return take(length);
    out_.text += kReplacement;
    out_.invalid_utf8 = true;
    ++at_;
  }

  // A backslash and an ASCII character. Before any other byte it stays alone, for that byte to be repaired next.
  [[nodiscard]] std::size_t escape_length() const {
    const bool plain = at_ + 1 < in_.size() && static_cast<unsigned char>(in_[at_ + 1]) >= 0x20 &&
                       static_cast<unsigned char>(in_[at_ + 1]) < 0x80;
    return plain ? 2 : 1;
  }

  void structure_byte() {
    const char c = in_[at_];
    if (c == '"') in_string_ = true;
    if (!is_letter(c)) return take(1);
    std::size_t end = at_;
    while (end < in_.size() && is_letter(in_[end])) ++end;
    const std::string_view word = in_.substr(at_, end - at_);
    if (word != "nan" && word != "inf") return take(word.size());
    if (out_.text.ends_with('-')) out_.text.pop_back();
    out_.text += "null";
    out_.non_finite = true;
    at_ = end;
  }

  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_string_ = false;
  RepairedDocument out_;
};

}  // namespace

std::string one_line(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size() && result.size() < kMaxLineBytes;) {
    const std::size_t length = utf8_length(text.substr(at));
    const bool control = static_cast<unsigned char>(text[at]) < 0x20 || text[at] == 0x7F;
    if (length == 0 || control) {
      result += control ? std::string_view(" ") : kReplacement;
      ++at;
      continue;
    }
    result += text.substr(at, length);
    at += length;
  }
  const auto last = result.find_last_not_of(' ');
  result.erase(last == std::string::npos ? 0 : last + 1);
  return result;
}

void append_lines(std::vector<std::string>& lines, std::string_view text) {
  while (!text.empty() && lines.size() < kMaxLines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (std::string line = one_line(text.substr(0, end)); !line.empty()) lines.push_back(std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

DocumentStream split_documents(std::string_view output) {
  DocumentStream stream;
  std::size_t at = 0;
  bool line_start = true;
  while (at < output.size()) {
    if (line_start && output[at] == '{') {
      const Extent extent = document_extent(output.substr(at));
      if (extent.complete) stream.documents.push_back(output.substr(at, extent.size));
      stream.truncated_last = !extent.complete;
      at += extent.size;
      // A cut-off document ends where the next line begins.
      line_start = !extent.complete;
      continue;
    }
    const std::size_t newline = output.find('\n', at);
    const std::size_t end = newline == std::string_view::npos ? output.size() : newline + 1;
    append_lines(stream.text, output.substr(at, end - at));
    at = end;
    line_start = true;
  }
  return stream;
}

RepairedDocument repair(std::string_view document) {
  return Repairer(document).run();
}

}  // namespace xblk::fio
