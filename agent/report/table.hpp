// Tables of text, aligned for terminals or as Markdown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xblk::report {

// Columns on a terminal: code points that start a character, so that "µ" and "–" count as one.
std::size_t display_width(std::string_view text);

struct Table {
  struct Column {
    std::string title;
    bool right = false;  // numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

// A cell's text may be wrapped in colour by `paint(table, row, column, padded_text)`; nullptr: no colour.
using Paint = std::string (*)(const Table&, std::size_t row, std::size_t column, const std::string& text);
std::string render_table(const Table& table, Paint paint);
std::string render_markdown_table(const Table& table);

}  // namespace xblk::report
