// A machine whose drivers and fio do what a test says: keys in a map, processes of the fake host, and the files that a
// real fio and its engine would leave.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/fake/fake_host.hpp"
#include "agent/run/rig.hpp"
#include "agent/toggle/fake/fake_keys.hpp"

namespace xblk::run {

// How the guest that is started next behaves. The defaults are those of a proven measurement.
struct FakeGuest {
  bool connects = true;
  bool ends_by_itself = true;
  host::ExitStatus exit = {};
  std::map<std::string, std::string> published_instead = {};  // negotiated keys that deviate, both ends
  std::uint64_t ios = 1000;
  std::uint64_t fio_ios = 1000;
  std::uint64_t persistent_hits = 1000;
  std::uint64_t maps = 0;
  std::function<void()> at_start = {};
};

class FakeRig final : public Rig {
 public:
  FakeRig();

  Status start(const RigSpec& spec) override;
  void stop() override;
  [[nodiscard]] toggle::KeyAccess& keys() override { return keys_; }
  [[nodiscard]] const HostLayout& layout() const override { return layout_; }
  [[nodiscard]] host::Process* process() override { return nullptr; }
  [[nodiscard]] std::optional<std::string> failure() override { return died; }

  // For FakeHost.
  Result<host::FakeLife> play_fio(const host::ProcessSpec& spec);

  std::function<FakeGuest(int visit)> guest = [](int) { return FakeGuest{}; };  // of the n-th fio that is started
  Status start_result;
  std::optional<std::string> died;
  std::vector<RigSpec> starts;
  toggle::FakeKeys keys_;

 private:
  void connect(unsigned domid, const FakeGuest& behaviour);
  void disconnect(unsigned domid);

  HostLayout layout_{"fake-host"};
  int fios_ = 0;
};

}  // namespace xblk::run
