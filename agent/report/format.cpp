#include "agent/report/format.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "agent/report/mechanism.hpp"

namespace xblk::report {
namespace {

struct Scale {
  double factor;
  const char* suffix;
};

// Four significant digits in the largest unit that keeps the number at 1 or more.
template <std::size_t N>
std::string scaled(double value, const std::array<Scale, N>& scales) {
  const Scale* chosen = &scales[0];
  for (const Scale& scale : scales) {
    if (std::abs(value) >= scale.factor) chosen = &scale;
  }
  const double number = value / chosen->factor;
  const double magnitude = std::abs(number);
  const int decimals = magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : 2;
  return fmt::format("{:.{}f}{}", number, decimals, chosen->suffix);
}

template <class Escape>
std::string escape_each(std::string_view text, Escape escape) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) escape(out, c);
  return out;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::string human_iops(double iops) {
  return scaled(iops, std::array{Scale{1, ""}, Scale{1e3, " k"}, Scale{1e6, " M"}});
}

std::string human_bandwidth(double bytes_per_second) {
  return scaled(bytes_per_second, std::array{Scale{1, " B/s"}, Scale{1024, " KiB/s"}, Scale{1048576, " MiB/s"},
                                             Scale{1073741824, " GiB/s"}});
}

std::string human_ns(double ns) {
  return scaled(ns, std::array{Scale{1, " ns"}, Scale{1e3, " µs"}, Scale{1e6, " ms"}, Scale{1e9, " s"}});
}

std::string human_mechanism(std::string_view name, double value) {
  const MechanismInfo* info = find_mechanism(name);
  const std::string_view unit = info == nullptr ? "" : info->unit;
  if (unit == "ratio") return fmt::format("{:.1f} %", value * 100);
  if (unit == "ns") return human_ns(value);
  if (unit == "B") return fmt::format("{:.0f} B", value);
  return fmt::format("{:.3f}", value);
}

std::string human_metric(std::string_view metric, double value) {
  return metric == "iops" ? human_iops(value) : human_ns(value);
}

std::string trim_zeros(const std::string& number) {
  const std::size_t dot = number.find('.');
  if (dot == std::string::npos) return number;
  const std::size_t end = std::min(number.find_first_not_of("0123456789", dot + 1), number.size());
  std::size_t keep = number.find_last_not_of('0', end - 1) + 1;
  if (keep == dot + 1) keep = dot;
  return number.substr(0, keep) + number.substr(end);
}

std::string printable(std::string_view text) {
  return escape_each(text, [](std::string& out, char c) { out += is_control(c) ? '?' : c; });
}

std::string escape_xml(std::string_view text) {
  return escape_each(text, [](std::string& out, char c) {
    switch (c) {
      case '&':
        out += "&amp;";
        return;
      case '<':
        out += "&lt;";
        return;
      case '>':
        out += "&gt;";
        return;
      case '"':
        out += "&quot;";
        return;
      case '\'':
        out += "&#39;";
        return;
      case '\n':
        out += "&#10;";
        return;
      default:
        // Other control characters are not allowed in XML 1.0 at all, not even as references.
        out += is_control(c) && c != '\t' ? '?' : c;
    }
  });
}

std::string escape_csv(std::string_view text) {
  // RFC 4180. A leading '=', '+', '-' or '@' would be run as a formula by spreadsheets, so it is set in quotes after
  // an apostrophe; numbers are written by us and never pass here.
  std::string out(text);
  if (!out.empty() && std::string_view("=+-@").find(out[0]) != std::string_view::npos) out.insert(0, "'");
  if (out.find_first_of(",\"\r\n") == std::string::npos) return out;
  return '"' +
         escape_each(out,
                     [](std::string& quoted, char c) {
                       if (c == '"') quoted += '"';
                       quoted += c;
                     }) +
         '"';
}

std::string escape_markdown(std::string_view text) {
  return escape_each(text, [](std::string& out, char c) {
    if (std::string_view("\\`*_{}[]<>#|").find(c) != std::string_view::npos) out += '\\';
    out += is_control(c) ? ' ' : c;
  });
}

std::string json_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string platform_label(const std::string& platform) {
  if (platform == "emu") return "emulated hypervisor: not Xen figures";
  if (platform == "model") return "model in virtual time: computed, not measured";
  if (platform == "xen") return "measured on Xen";
  return platform;
}

}  // namespace xblk::report
