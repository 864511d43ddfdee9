#include "agent/report/table.hpp"

#include <algorithm>

#include "agent/report/format.hpp"

namespace xblk::report {
namespace {

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::size_t have = display_width(text);
  const std::string spaces(width > have ? width - have : 0, ' ');
  return right ? spaces + text : text + spaces;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string render_table(const Table& table, Paint paint) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    std::size_t width = display_width(table.columns[column].title);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  const auto append_line = [&](std::string& out, auto cell) {
    std::string line;
    for (std::size_t column = 0; column < widths.size(); ++column) line += (column == 0 ? "" : "  ") + cell(column);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  };
  std::string out;
  append_line(out, [&](std::size_t c) { return pad(table.columns[c].title, widths[c], table.columns[c].right); });
  append_line(out, [&](std::size_t c) { return std::string(widths[c], '-'); });
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    append_line(out, [&](std::size_t c) {
      const std::string text = pad(table.rows[row][c], widths[c], table.columns[c].right);
      return paint == nullptr ? text : paint(table, row, c, text);
    });
  }
  return out;
}

std::string render_markdown_table(const Table& table) {
  std::string out = "|";
  std::string rule = "|";
  for (const Table::Column& column : table.columns) {
    out += " " + escape_markdown(column.title) + " |";
    rule += column.right ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + escape_markdown(cell) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace xblk::report
