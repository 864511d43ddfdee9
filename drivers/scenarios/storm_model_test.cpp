// The reconnect storm in virtual time: 64 devices of up to 4 queues, one schedule per seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "drivers/scenarios/model_load.hpp"
#include "drivers/scenarios/model_rig.hpp"
#include "drivers/scenarios/policy_storm.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

// Of everything, in an order drawn at random: some 300 rings and guests take part.
constexpr int kTurnsMax = 2'000'000;

// A device, its load on four channels, and what its ends were told last.
struct Loaded {
  DomId domain;
  blkfront::Device<ModelPlatform>* device = nullptr;
  std::vector<std::unique_ptr<blkfront::Channel>> channels;
  std::vector<std::unique_ptr<Workload>> loads;
  PolicyPair asked;

  void turn() {
    for (auto& load : loads) load->turn();
  }
};

class Storm {
 public:
  Storm(std::uint64_t seed, std::uint16_t guests) : rig_(seed) {
    for (std::uint16_t id = 1; id <= guests; ++id) {
      auto& guest = guests_.emplace_back();
      guest.domain = DomId(id);
      guest.asked.front["queues"] = "4";
      guest.device = &rig_.add_guest(guest.domain, {.store = "ram:2MiB", .front_policy = guest.asked.front});
    }
    EXPECT_TRUE(run_until([&] { return all([](const Loaded& g) { return g.device->connected(); }); }));
    for (auto& guest : guests_) add_load(guest, seed);
  }

  void shake() {
    Loaded& guest = guests_[rig_.random().below(guests_.size())];
    change_policies(guest.asked, rig_.random());
    const auto write = [&](const std::string& directory, const blkif::PolicyMap& policies) {
      for (const auto& [name, value] : policies) {
        ASSERT_TRUE(rig_.dom0_keys().write(directory + "/xblk-policy/" + name, value));
      }
    };
    write(ModelRig::frontend_path(guest.domain), guest.asked.front);
    write(ModelRig::backend_path(guest.domain), guest.asked.back);
    ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::frontend_path(guest.domain) + "/xblk-policy/reconnect",
                                       std::to_string(++reconnects_)));
  }

  [[nodiscard]] bool all_came_back() {
    return run_until([&] { return all([&](const Loaded& g) { return came_back(g); }); });
  }

  // Everything ends, is closed and verified. Returns a digest of all that happened.
  std::uint64_t finish() {
    std::uint64_t trace = 0;
    for (auto& guest : guests_) {
      for (auto& load : guest.loads) load->drain();
      EXPECT_TRUE(run_until([&] {
        return std::all_of(guest.loads.begin(), guest.loads.end(), [](auto& l) { return l->in_flight() == 0; });
      }));
      for (auto& load : guest.loads) {
        EXPECT_GT(load->completed(), 0u);
        EXPECT_EQ(load->mismatches(), 0u);
        EXPECT_EQ(load->errors(), 0u) << load->last_error();
        trace = trace * 31 + load->trace();
      }
      guest.loads.clear();
      guest.channels.clear();
      guest.device->request_close();
    }
    EXPECT_TRUE(run_until([&] { return all([](const Loaded& g) { return g.device->closed(); }); }));
    EXPECT_EQ(rig_.usage(), (hypervisor::HypervisorUsage{.domains = static_cast<std::uint32_t>(guests_.size())}));
    for (auto& guest : guests_) {
      const QueueSample backend = backend_sample(rig_, guest.domain);
      for (std::size_t g = 0; g < kGaugeCount; ++g) EXPECT_EQ(backend.gauges[g], 0u) << kGaugeNames[g];
    }
    EXPECT_TRUE(rig_.log().empty()) << rig_.log().front();
    return trace;
  }

 private:
  void add_load(Loaded& guest, std::uint64_t seed) {
    for (unsigned c = 0; c < 4; ++c) {
      guest.channels.push_back(guest.device->open_channel(c).value());
      const Workload::Options options{
          .depth = 2, .first = Sectors(c * 1024), .length = Sectors(1024), .discards = false};
      guest.loads.push_back(std::make_unique<Workload>(*guest.device, *guest.channels.back(), options,
                                                       seed * 1000 + guest.domain.value() * 4 + c));
    }
  }

  template <class Predicate>
  [[nodiscard]] bool all(const Predicate& predicate) {
    return std::all_of(guests_.begin(), guests_.end(), predicate);
  }

  [[nodiscard]] bool came_back(const Loaded& guest) {
    if (!guest.device->connected()) return false;
    const auto agreed = [&](const std::string& path, const blkif::PolicyMap& agreement) {
      return std::all_of(agreement.begin(), agreement.end(), [&](const auto& key) {
        return rig_.dom0_keys().read(path + "/xblk-negotiated/" + key.first).value_or("") == key.second;
      });
    };
    return agreed(ModelRig::backend_path(guest.domain), backend_agreement(guest.asked)) &&
           agreed(ModelRig::frontend_path(guest.domain), frontend_agreement(guest.asked));
  }

  // Asked now and then, as the question costs more than a turn.
  bool run_until(const std::function<bool()>& done) {
    for (int i = 0; i < kTurnsMax; ++i) {
      if (i % 1000 == 0 && done()) return true;
      guests_[rig_.random().below(guests_.size())].turn();
      rig_.turn();
    }
    return done();
  }

  ModelRig rig_;
  std::vector<Loaded> guests_;
  int reconnects_ = 0;
};

// Each burst: as many reconnects as there are guests, none of them waited for.
std::uint64_t storm(std::uint64_t seed, std::uint16_t guests, int bursts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Storm storm(seed, guests);
  for (int burst = 0; burst < bursts && !testing::Test::HasFailure(); ++burst) {
    for (int i = 0; i < guests; ++i) storm.shake();
    EXPECT_TRUE(storm.all_came_back()) << "burst " << burst;
  }
  return storm.finish();
}

TEST(StormModel, SixtyFourDevicesComeBackFromEveryReconnectWithTheirDataAndNothingLeaks) {
  storm(640002, 64, 2);
}

TEST(StormModel, TheSameSeedGivesTheSameStorm) {
  EXPECT_EQ(storm(640004, 3, 2), storm(640004, 3, 2));
  EXPECT_NE(storm(640004, 3, 2), storm(640005, 3, 2));
}

}  // namespace
}  // namespace xblk::scenarios
