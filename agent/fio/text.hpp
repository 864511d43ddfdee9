// fio's output is not one JSON text: notes, error lines and status reports stand before, between and after documents,
// and strings hold bytes that JSON forbids. This splits and repairs; result.hpp gives it meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xblk::fio {

struct DocumentStream {
  std::vector<std::string_view> documents;  // from a '{' at column 0 to its '}'
  std::vector<std::string> text;            // non-empty lines outside them, bounded
  bool truncated_last = false;              // the last document has no end: fio was killed, or the disk is full
};

// Linear in the input. fio indents everything inside a document, so a '{' at column 0 always begins one; where the one
// before has no end, it was cut off.
DocumentStream split_documents(std::string_view output);

// Lines without control characters or invalid UTF-8, at most kMaxLines of at most kMaxLineBytes.
void append_lines(std::vector<std::string>& lines, std::string_view text);
inline constexpr std::size_t kMaxLines = 100;
inline constexpr std::size_t kMaxLineBytes = 500;

// The text as one printable line of at most kMaxLineBytes: names of jobs come from the user, errors from anywhere.
std::string one_line(std::string_view text);

struct RepairedDocument {
  std::string text;
  bool control_characters = false;  // escaped: fio's json.c escapes only '"' and '\'
  bool invalid_utf8 = false;        // replaced by U+FFFD
  bool non_finite = false;          // nan and inf, replaced by null
};
RepairedDocument repair(std::string_view document);

}  // namespace xblk::fio
