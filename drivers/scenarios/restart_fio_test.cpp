// Restarts of the backend drivers under the real fio.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "drivers/base/prng.hpp"
#include "drivers/fio/fio_testing.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_fio.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/temporary_disk.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};

TEST(RestartFio, VerifiesEveryBlockAlthoughItsBackendIsRestartedAllTheTime) {
  constexpr std::uint64_t kSeed = 70002;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const TemporaryDisk disk;
  EmuRig rig;
  rig.attach(kGuest, {.store = disk.store(Bytes(32 << 20)), .front_policy = {{"queues", "2"}}});
  std::atomic<bool> done{false};
  std::thread restarts([&] {
    Prng random(kSeed);
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + random.below(60)));
      rig.restart_backends();
    }
  });
  const fio_engine::TemporaryFolder folder;
  const auto fio = fio_engine::run_fio(folder, "xblk-fio",
                                       fio_place(rig.options(kGuest), "") +
                                           "--rw=randrw --bsrange=4k-64k --verify=crc32c --iodepth=32 --numjobs=2 "
                                           "--size=12m --offset_increment=16m --loops=3 --fsync=64");
  done = true;
  restarts.join();
  EXPECT_EQ(fio.exit_code, 0) << fio.output << rig.log();
  EXPECT_NE(rig.log().find("took over 2 live rings"), std::string::npos) << rig.log();
  expect_closed_without_leak(rig, kGuest);
}

}  // namespace
}  // namespace xblk::scenarios
