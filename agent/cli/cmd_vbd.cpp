// xblk vbd: the virtual disks of a host: what each end offers, what was negotiated, what its queues count.
#include "agent/cli/command.hpp"
#include "agent/cli/emu_directory.hpp"
#include "agent/toggle/keystore_access.hpp"
#include "agent/toggle/verify.hpp"
#include "drivers/base/statistics_file.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::cli {
namespace {

constexpr const char* kBackends = "/local/domain/0/backend/xblk";

struct VbdOptions {
  std::string directory = default_emu_directory();
  unsigned guest = 1;
  unsigned device = 51712;
};

Result<keystore::Client> connect(const VbdOptions& options) {
  const run::HostLayout layout{std::filesystem::absolute(options.directory)};
  if (auto found = describe_emu(layout); !found) return tl::unexpected(found.error());
  return keystore::Client::connect(layout.xenstore_socket().string());
}

std::string state_text(keystore::Client& keys, const std::string& directory) {
  const auto state = keys.read(directory + "/state");
  return state ? std::string(blkif::to_string(blkif::parse_xenbus_state(*state))) : "absent";
}

int list(const VbdOptions& options) {
  auto keys = connect(options);
  if (!keys) return complain(kEnvironment, keys.error().message);
  std::string text;
  const auto guests = keys->list(kBackends).value_or(std::vector<std::string>{});
  for (const auto& guest : guests) {
    const std::string of_guest = fmt::format("{}/{}", kBackends, guest);
    for (const auto& device : keys->list(of_guest).value_or(std::vector<std::string>{})) {
      const std::string back = of_guest + "/" + device;
      text += fmt::format("guest {}  device {}  {}  front {}  back {}\n", guest, device,
                          keys->read(back + "/params").value_or("-"),
                          state_text(*keys, keys->read(back + "/frontend").value_or("")), state_text(*keys, back));
    }
  }
  return print(text.empty() ? "no vbd\n" : text);
}

std::string counters_text(const std::string& file) {
  const auto sample = read_statistics(file);
  if (!sample) return fmt::format("  counters: {}\n", sample.error().message);
  std::string text = fmt::format("  counters ({}, generation {}), one column per queue\n", file, sample->generation);
  for (std::size_t c = 0; c < kCounterCount; ++c) {
    std::string columns;
    bool any = false;
    for (const QueueSample& queue : sample->queues) {
      columns += fmt::format(" {:>14}", queue.counters[c]);
      any = any || queue.counters[c] != 0;
    }
    if (any) text += fmt::format("    {:<26}{}\n", kCounterNames[c], columns);
  }
  return text;
}

int show(const VbdOptions& options) {
  auto keys = connect(options);
  if (!keys) return complain(kEnvironment, keys.error().message);
  const toggle::Vbd vbd{.guest = DomId(static_cast<std::uint16_t>(options.guest)), .device = options.device};
  std::string text;
  for (const auto& [end, directory] :
       {std::pair{"front", vbd.frontend_directory()}, std::pair{"back", vbd.backend_directory()}}) {
    const auto tree = keys->read_tree(directory);
    if (!tree) return complain(kUsage, fmt::format("guest {} has no device {}", options.guest, options.device));
    text += fmt::format("{} {} ({})\n", end, state_text(*keys, directory), directory);
    for (const auto& [key, value] : *tree) text += fmt::format("  {} = {}\n", key, value);
    if (const auto file = tree->find("xblk-statistics"); file != tree->end()) text += counters_text(file->second);
  }
  return print(text);
}

}  // namespace

void add_vbd(CLI::App& app, Action& action) {
  auto* group = app.add_subcommand("vbd", "Virtual disks of an emulated host: list, show");
  group->footer(
      "Examples:\n  xblk vbd list\n  xblk vbd show --guest 1     keys of both ends and counters of each queue");
  group->require_subcommand(1);
  auto options = std::make_shared<VbdOptions>();
  auto* list_command = group->add_subcommand("list", "All disks with the states of both ends");
  auto* show_command = group->add_subcommand("show", "One disk: offers, negotiated result, counters");
  for (auto* command : {list_command, show_command}) {
    command->add_option("--dir", options->directory, "Directory of the host")->capture_default_str();
  }
  show_command->add_option("--guest", options->guest, "Guest")->check(CLI::Range(1, 64))->capture_default_str();
  show_command->add_option("--device", options->device, "Device number")->capture_default_str();
  list_command->callback([=, &action] { action = [=] { return list(*options); }; });
  show_command->callback([=, &action] { action = [=] { return show(*options); }; });
}

}  // namespace xblk::cli
