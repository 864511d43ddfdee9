// The HTML report: what was found first, then why, then everything needed to doubt it or do it again.
#include <algorithm>

#include <fmt/format.h>

#include "agent/report/format.hpp"
#include "agent/report/html_parts.hpp"
#include "agent/report/html_style.hpp"
#include "agent/report/report.hpp"
#include "agent/report/sittings.hpp"

namespace xblk::report {
namespace {

using html::cell;
using html::header_row;

std::string fact(const std::string& name, const std::string& value) {
  return fmt::format("<li><span>{}</span><b>{}</b></li>", escape_xml(name), escape_xml(value));
}

std::string render_head(const Results& results) {
  const RunInfo& run = results.run;
  std::size_t repeats = 0;
  for (const PointResult& point : results.points) repeats = std::max(repeats, point.repeats.size());
  const auto ok = std::count_if(results.points.begin(), results.points.end(),
                                [](const PointResult& point) { return point.status == Outcome::ok; });
  std::string out =
      fmt::format("<h1>{}</h1>\n<div class=\"soft\">run {} &middot; {} to {}</div>\n", escape_xml(run.profile_name),
                  escape_xml(run.id), escape_xml(run.started), escape_xml(run.ended));
  out += fmt::format("<div class=\"platform {}\">{}</div>\n", run.platform == "xen" ? "xen" : "other",
                     escape_xml(platform_label(run.platform)));
  for (const std::string& note : run_notes(results)) out += "<p class=\"unsure\">" + escape_xml(note) + "</p>\n";
  out += "<ul class=\"facts\">";
  out += fact("points ok", fmt::format("{} of {}", ok, results.points.size()));
  out += fact("repeats", std::to_string(repeats));
  out += fact("order", run.order);
  out += fact("seed", std::to_string(run.seed));
  out += fact("fio", run.fio_version);
  out += fact("xblk", run.xblk_version);
  return out + "</ul>\n";
}

std::string negotiated_text(const Json& end) {
  if (!end.is_object()) return json_text(end);
  std::string out;
  for (const auto& [name, value] : end.items()) out += (out.empty() ? "" : "  ") + name + "=" + json_text(value);
  return out;
}

std::string render_negotiated(const Results& results, const std::vector<std::string>& labels) {
  std::string out =
      "<h2>Negotiated</h2>\n<p class=\"soft\">What each end reported after connecting; offers alone prove "
      "nothing.</p>\n<div class=\"scroll\"><table>\n";
  out += header_row({{"point"}, {"end"}, {"in force"}}) + "<tbody>\n";
  for (std::size_t i = 0; i < results.points.size(); ++i) {
    for (const auto& [end, keys] : results.points[i].negotiated.items()) {
      out += fmt::format("<tr>{}{}<td class=\"wrap\">{}</td></tr>\n", cell(labels[i]), cell(end),
                         escape_xml(negotiated_text(keys)));
    }
  }
  return out + "</tbody></table></div>\n";
}

std::string render_commands(const Results& results, const std::vector<std::string>& labels) {
  std::string out = "<h2>Commands</h2>\n<details><summary>xblk</summary><pre>" + escape_xml(results.run.command_line) +
                    "</pre></details>\n";
  for (std::size_t i = 0; i < results.points.size(); ++i) {
    const PointResult& point = results.points[i];
    std::string commands;
    if (!point.repeats.empty()) {
      for (const std::string& command : point.repeats.front().fio_commands) commands += command + "\n";
    }
    if (commands.empty()) commands = point.fio_command;
    out += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escape_xml(labels[i]),
                       escape_xml(commands));
  }
  return out;
}

std::string render_environment(const Results& results) {
  std::string out = "<h2>Environment</h2>\n<div class=\"scroll\"><table><tbody>\n";
  for (const auto& [name, value] : results.run.fingerprint.items()) {
    out += fmt::format("<tr>{}<td class=\"wrap\">{}</td></tr>\n", cell(name), escape_xml(json_text(value)));
  }
  out += "</tbody></table></div>\n<h2>Profile</h2>\n<details><summary>" + escape_xml(results.run.profile_name) +
         "</summary><pre>";
  return out + escape_xml(results.run.profile_text) + "</pre></details>\n";
}

}  // namespace

std::string render_html(const Results& results, const Comparison* comparison) {
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  // The page needs nothing from anywhere; the policy makes sure that no text in it can change that.
  out += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";
  out += fmt::format("<title>{} {}</title>\n<style>{}</style></head>\n<body><main>\n",
                     escape_xml(results.run.profile_name), escape_xml(results.run.id), kStyleSheet);
  out += render_head(results);
  if (!results.points.empty()) {
    const SplitParams split = split_params(params_of(results));
    std::vector<std::string> labels;
    for (const PointResult& point : results.points) labels.push_back(point_label(point, split));
    out += html::results_table(results, split);
    if (comparison != nullptr) out += html::comparison_table(*comparison);
    out += html::iops_chart(results, labels) + html::latency_charts(results, labels) +
           html::mechanism_charts(results, labels) + render_negotiated(results, labels) +
           render_commands(results, labels);
  }
  out += render_environment(results);
  return out + "<footer>" + escape_xml("xblk " + results.run.xblk_version + ", run " + results.run.id) +
         "</footer>\n</main></body></html>\n";
}

}  // namespace xblk::report
