#include "drivers/scenarios/interop_fio.hpp"

#include <gtest/gtest.h>

#include "drivers/fio/fio_testing.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_fio.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/temporary_disk.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr Bytes kSize{16 << 20};

// Two jobs, each on its half of the device, on different queues where there are several. A direct request holds 44 KiB
// at most, so the larger blocks need more than one, or an indirect one. The second job trims each block before it
// writes it; a store may do the two in any order, so fio must not have them in flight together.
std::string jobs(const std::string& place, const blkfront::Negotiated& offered) {
  const std::string verified = " --verify=crc32c --verify_fatal=1 --iodepth=16 --randseed=20260301 ";
  std::string mixed = "--rw=randrw --bsrange=512-128k --size=4m" + verified;
  if (offered.flush || offered.barrier) mixed += "--fsync=32 ";
  const std::string trimmed = offered.discard ? "--rw=trimwrite" : "--rw=randwrite";
  return place + mixed + "--name=second" + place + trimmed + " --bs=60k --offset=8m --size=3m --serialize_overlap=1" +
         verified;
}

}  // namespace

void run_with_fio(const Pairing& row) {
  const TemporaryDisk disk;
  EmuRig rig({.policies = row.host, .options = {"--guest-memory", "8192"}});
  const std::string store = row.store == "file" ? disk.store(kSize) : "ram:" + std::to_string(kSize.value());
  rig.attach(kGuest, {.store = store, .front_policy = row.front, .back_policy = row.back});
  blkfront::DeviceInfo info;
  {
    auto device = rig.connect(kGuest);
    ASSERT_TRUE(device) << device.error().message << rig.log();
    info = (*device)->info();
    EXPECT_TRUE((*device)->disconnect());
  }
  expect_agreement(row, info);
  const fio_engine::TemporaryFolder folder;
  const auto fio = fio_engine::run_fio(folder, "xblk-fio", jobs(fio_place(rig.options(kGuest), ""), info.negotiated));
  ASSERT_EQ(fio.exit_code, 0) << fio.output << rig.log();
  expect_closed_without_leak(rig, kGuest);
  const QueueSample back = backend_sample(rig, kGuest);
  expect_mechanism(row, frontend_sample(rig, kGuest), back);
  EXPECT_GE(back.get(Counter::write_bytes), 4u << 20);
  EXPECT_EQ(back.get(Counter::requests_flush) > 0, info.negotiated.flush || info.negotiated.barrier);
  EXPECT_EQ(back.get(Counter::requests_discard) > 0, info.negotiated.discard);
  EXPECT_EQ(back.get(Counter::requests_indirect) > 0, info.negotiated.indirect_segments_max > 0);
  EXPECT_EQ(rig.stop(), 0);
  EXPECT_EQ(rig.log(), "");
}

}  // namespace xblk::scenarios
