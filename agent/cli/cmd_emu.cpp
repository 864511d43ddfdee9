// xblk emu: an emulated host to play with, and what a shell needs to aim stock xenstore tools and fio at it.
#include <csignal>

#include "agent/cli/command.hpp"
#include "agent/cli/emu_directory.hpp"
#include "agent/host/files.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/run/host_process.hpp"
#include "agent/run/load.hpp"
#include "agent/run/programs.hpp"
#include "agent/run/store_files.hpp"
#include "agent/toggle/keystore_access.hpp"

namespace xblk::cli {
namespace {

namespace fs = std::filesystem;

struct EmuOptions {
  std::string directory = default_emu_directory();
  run::RigSpec spec{.guests = 2};
  std::string store = "null:1GiB";
  std::vector<std::string> overwrite;
  unsigned guest = 0;

  [[nodiscard]] run::HostLayout layout() const { return {fs::absolute(directory)}; }
};

// What the guests' disks are kept in, if it can be used and nothing is lost that was not named.
Result<plan::StoreSpec> check_store(const EmuOptions& options) {
  auto store = plan::parse_store(options.store);
  if (!store) return store;
  if (const auto why = plan::refusal_for_guests(*store, options.spec.guests); !why.empty()) return fail(EINVAL, why);
  const auto files = run::store_files(*store, options.spec.guests, /*reads_only=*/false);
  if (auto usable = run::check_store_files(files, *store, options.overwrite); !usable) {
    return tl::unexpected(usable.error());
  }
  return store;
}

Status attach_disks(const run::HostLayout& layout, const EmuOptions& options, const plan::StoreSpec& store) {
  auto client = keystore::Client::connect(layout.xenstore_socket().string());
  if (!client) return tl::unexpected(client.error());
  toggle::KeystoreAccess keys(*std::move(client));
  for (unsigned guest = 1; guest <= options.spec.guests; ++guest) {
    if (auto done = toggle::attach(keys, {.vbd = run::vbd_of(guest), .params = plan::store_of_guest(store, guest)});
        !done)
      return done;
  }
  return {};
}

int up(const EmuOptions& options) {
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  const auto layout = options.layout();
  if (describe_emu(layout)) {
    return complain(kEnvironment, fmt::format("an emulated host runs in {} already; 'xblk emu down' ends it",
                                              layout.directory.string()));
  }
  const auto store = check_store(options);
  if (!store) return complain(kUsage, store.error().message);
  const auto programs = run::own_programs();
  std::error_code error;
  fs::create_directories(layout.directory, error);
  if (error) return complain(kEnvironment, host::storage_error(error.value(), "create", layout.directory).message);
  auto started = run::HostProcess::start(
      **host,
      {.program = programs.emu_host, .layout = layout, .log = layout.log(), .spec = options.spec, .outlives_us = true});
  if (!started) return complain(kEnvironment, started.error().message);
  if (auto attached = attach_disks(layout, options, *store); !attached) {
    started->stop();
    return complain(kEnvironment, attached.error().message);
  }
  return print(fmt::format("emulated host {} with {} guests in {}; next: xblk emu env --dir {}\n",
                           started->process().pid(), options.spec.guests, layout.directory.string(),
                           layout.directory.string()));
}

int down(const EmuOptions& options) {
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  const auto layout = options.layout();
  const auto found = describe_emu(layout);
  if (!found) return complain(kEnvironment, found.error().message);
  constexpr Nanos kPatience = seconds(10);
  ::kill(found->pid, SIGTERM);
  const Instant deadline = (*host)->now() + kPatience;
  while (::kill(found->pid, 0) == 0) {
    if ((*host)->now() >= deadline) {
      return complain(kEnvironment, fmt::format("the host (process {}) did not end within 10 s", found->pid));
    }
    (*host)->wait({}, (*host)->now() + millis(10));
  }
  std::error_code ignored;
  fs::remove_all(layout.directory, ignored);
  return print("ended\n");
}

int status(const EmuOptions& options) {
  const auto layout = options.layout();
  const auto found = describe_emu(layout);
  if (!found) return complain(kEnvironment, found.error().message);
  return print(found->document.dump(2) + "\n");
}

std::string shell_environment(const run::HostLayout& layout, unsigned guest) {
  const auto socket = guest == 0 ? layout.xenstore_socket() : layout.guest_xenstore_socket(run::vbd_of(guest).guest);
  return fmt::format("export XENSTORED_PATH={}\n", fio::shell_quoted({socket.string()}));
}

int env(const EmuOptions& options) {
  const auto layout = options.layout();
  const auto found = describe_emu(layout);
  if (!found) return complain(kEnvironment, found.error().message);
  if (options.guest > found->guests) {
    return complain(kUsage, fmt::format("this host has guests 1 to {}", found->guests));
  }
  const unsigned example = options.guest == 0 ? 1 : options.guest;
  const auto vbd = run::vbd_of(example);
  fio::GuestJob job{.name = fmt::format("guest-{}", example), .iodepth = 32, .runtime = seconds(5)};
  const auto programs = run::own_programs();
  job.output = fmt::format("guest-{}.json", example);
  job.engine = {.library = programs.engine,
                .hypervisor_socket = layout.hypervisor_socket(),
                .domid = vbd.guest,
                .xenstore_socket = layout.guest_xenstore_socket(vbd.guest),
                .snapshots = fmt::format("guest-{}.snapshots.jsonl", example),
                .statistics = layout.front_statistics(vbd)};
  const auto argv = fio::argv(job);
  if (!argv) return complain(kEnvironment, argv.error().message);
  return print(shell_environment(layout, options.guest) +
               fmt::format("# now xenstore-ls, xenstore-read, xenstore-write and xenstore-watch speak as {}\n"
                           "# load of guest {}:\n# {}\n",
                           options.guest == 0 ? "the control domain" : fmt::format("guest {}", options.guest), example,
                           fio::shell_quoted(*argv)));
}

CLI::App* add_verb(CLI::App& group, Action& action, const std::shared_ptr<EmuOptions>& options, const char* name,
                   const char* help, int (*verb)(const EmuOptions&)) {
  auto* command = group.add_subcommand(name, help);
  command->add_option("--dir", options->directory, "Directory of the host")->capture_default_str();
  command->callback([=, &action] { action = [=] { return verb(*options); }; });
  return command;
}

}  // namespace

void add_emu(CLI::App& app, Action& action) {
  auto* group = app.add_subcommand("emu", "An emulated host in the background: up, down, status, env");
  group->footer(
      "Examples:\n"
      "  xblk emu up --guests 2 --store ram:64MiB\n"
      "  eval \"$(xblk emu env)\"; xenstore-ls /local/domain\n"
      "  eval \"$(xblk emu env --guest 1)\"; xenstore-ls device\n"
      "  xblk emu down");
  group->require_subcommand(1);
  auto options = std::make_shared<EmuOptions>();
  auto* up_command = add_verb(*group, action, options, "up", "Start a host with a disk for each guest", up);
  up_command->add_option("--guests", options->spec.guests, "Guests, numbered from 1")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  up_command
      ->add_option(
          "--store", options->store,
          "Each guest's disk: null:SIZE, ram:SIZE, file:SIZE:PATH with {guest} in it, throttled:RATE:TIME:STORE")
      ->capture_default_str();
  up_command->add_option("--overwrite", options->overwrite, "A file of the store that may lose what is in it")
      ->allow_extra_args(false);
  for (const blkif::PolicyKey& key : blkif::policy_keys()) {
    if (!key.applies_to(blkif::PolicyEnd::host)) continue;
    const std::string name(key.name);
    up_command->add_option("--" + name, options->spec.host.at(name), std::string(key.help))
        ->check([&key](const std::string& text) {
          const auto value = blkif::parse_policy_value(key, text);
          return value ? std::string() : value.error().message;
        })
        ->capture_default_str();
  }
  add_verb(*group, action, options, "down", "End it", down);
  add_verb(*group, action, options, "status", "What runs there, as JSON", status);
  auto* env_command = add_verb(*group, action, options, "env", "Shell code that aims xenstore tools at it", env);
  env_command->add_option("--guest", options->guest, "See it as this guest (default: as the control domain)");
}

}  // namespace xblk::cli
