// Numbers and text for people and for other programs: units and escaping. Shared by all renderers.
#pragma once

#include <string>
#include <string_view>

#include "agent/report/results.hpp"

namespace xblk::report {

std::string human_iops(double iops);                   // "402.0 k"
std::string human_bandwidth(double bytes_per_second);  // "1.53 GiB/s"
std::string human_ns(double ns);                       // "78.10 µs"
std::string human_mechanism(std::string_view name, double value);
std::string human_metric(std::string_view metric, double value);  // metrics of compare.hpp
std::string trim_zeros(const std::string& number);                // "100.0 k" -> "100 k", for axes

// Text that a peer, a file or fio gave us: control characters would drive the terminal, so they are replaced.
std::string printable(std::string_view text);
std::string escape_xml(std::string_view text);  // for HTML and XML, text and attributes
std::string escape_csv(std::string_view text);
std::string escape_markdown(std::string_view text);
std::string json_text(const Json& value);  // strings without quotes, others as JSON

// "emulated hypervisor: not Xen figures", for headings.
std::string platform_label(const std::string& platform);

}  // namespace xblk::report
