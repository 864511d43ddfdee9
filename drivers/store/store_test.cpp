// What every store must do, whatever it keeps its blocks in: one suite over all of them.
#include "drivers/store/store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/store/scratch_directory_testing.hpp"
#include "drivers/store/store_testing.hpp"

namespace xblk::store::testing {
namespace {

constexpr std::uint64_t kSectors = 2048;  // of every store here

// Where a kind of store finds its medium.
class Medium {
 public:
  [[nodiscard]] std::string disk_file() const { return directory_.file("disk"); }
  // A file on tmpfs without a mount.
  [[nodiscard]] std::string memory_file() {
    memory_ = UniqueFd(::memfd_create("store", MFD_CLOEXEC));
    return "/proc/self/fd/" + std::to_string(memory_.get());
  }

 private:
  ScratchDirectory directory_;
  UniqueFd memory_;
};

struct Kind {
  const char* name;
  std::string (*specification)(Medium& medium);
  bool keeps_data = true;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class Stores : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    store_ = must_open(GetParam().specification(medium_));
    ASSERT_NE(store_, nullptr);
    queue_ = must_open_queue(*store_);
    ASSERT_NE(queue_, nullptr);
    block_ = store_->geometry().sector_size / kSectorSize;
  }
  [[nodiscard]] bool keeps_data() const { return GetParam().keeps_data; }

  Medium medium_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Queue> queue_;
  std::uint64_t block_ = 1;  // sectors
};
class DataStores : public Stores {};

TEST_P(Stores, SayWhatTheyAre) {
  const Geometry geometry = store_->geometry();
  EXPECT_EQ(geometry.capacity, Sectors(kSectors));
  EXPECT_FALSE(geometry.readonly);
  EXPECT_TRUE(geometry.discard);
  EXPECT_EQ(geometry.asynchronous, queue_->completion_fd() >= 0);
  EXPECT_FALSE(store_->description().empty());
  EXPECT_EQ(store_->description().find('\n'), std::string::npos);
}

TEST_P(DataStores, KeepWhatIsWrittenThroughAnyQueue) {
  const auto other = must_open_queue(*store_);
  EXPECT_EQ(write_at(*queue_, 3 * block_, 5 * block_, std::byte{0x5a}), 0);
  EXPECT_TRUE(reads_as(*other, 3 * block_, 5 * block_, std::byte{0x5a}));
  EXPECT_TRUE(reads_as(*other, 0, 3 * block_, std::byte{0}));
  EXPECT_TRUE(reads_as(*other, 8 * block_, 4 * block_, std::byte{0}));
}

// Batches of random operations on ranges that do not touch, compared with a plain array.
TEST_P(DataStores, AgreeWithAPlainArray) {
  constexpr std::uint64_t kSeed = 20110531;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  std::vector<std::byte> expected(kSectors * kSectorSize);
  for (int round = 0; round < 40; ++round) {
    std::vector<Operation> batch;
    std::vector<std::unique_ptr<Pages>> memory;
    std::vector<std::vector<Piece>> pieces;
    for (std::uint64_t sector = random.below(16) * block_; sector + 16 * block_ <= kSectors;
         sector += (16 + random.below(32)) * block_) {
      const std::uint64_t count = (1 + random.below(16)) * block_;
      const std::size_t bytes = count * kSectorSize;
      const auto op = static_cast<Op>(random.below(4));
      memory.push_back(std::make_unique<Pages>(bytes));
      for (std::byte& b : memory.back()->all()) b = static_cast<std::byte>(random.next());
      pieces.emplace_back();
      for (std::size_t at = 0; at < bytes;) {  // pieces of whole sectors, blocks or not
        const std::size_t n = std::min<std::size_t>(bytes - at, (1 + random.below(8)) * kSectorSize);
        pieces.back().push_back(memory.back()->piece(at, n));
        at += n;
      }
      batch.push_back({op, Sectors(sector), Sectors(op == Op::flush ? 0 : count), {}, batch.size()});
    }
    for (Operation& operation : batch) {
      if (operation.op == Op::read || operation.op == Op::write) operation.pieces = pieces[operation.cookie];
    }
    queue_->submit(batch);
    for (const auto& [cookie, error] : reap_all(*queue_, batch.size())) EXPECT_EQ(error, 0) << "operation " << cookie;
    for (const Operation& operation : batch) {
      const auto at = expected.begin() + static_cast<std::ptrdiff_t>(to_bytes(operation.sector).value());
      const auto end = at + static_cast<std::ptrdiff_t>(to_bytes(operation.count).value());
      const auto data = memory[operation.cookie]->all();
      if (operation.op == Op::read) {
        ASSERT_TRUE(std::equal(at, end, data.begin())) << "round " << round;
      }
      if (operation.op == Op::write) std::copy(data.begin(), data.end(), at);
      if (operation.op == Op::discard) std::fill(at, end, std::byte{0});
    }
  }
  EXPECT_EQ(read_at(*queue_, 0, kSectors).data, expected);
}

TEST_P(Stores, TakeABatchLargerThanAnyRing) {
  constexpr std::size_t kCount = 1000;
  const Pages pages(block_ * kSectorSize * kCount);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i)
    pieces.push_back(pages.piece(i * block_ * kSectorSize, block_ * kSectorSize));
  for (std::size_t i = 0; i < kCount; ++i)
    batch.push_back({Op::write, Sectors(i % (kSectors / block_) * block_), Sectors(block_), {&pieces[i], 1}, i});
  queue_->submit(batch);
  for (const auto& [cookie, error] : reap_all(*queue_, kCount)) EXPECT_EQ(error, 0) << "operation " << cookie;
}

TEST_P(Stores, ADiscardedRangeReadsAsZeros) {
  EXPECT_EQ(write_at(*queue_, 0, kSectors, std::byte{0x77}), 0);
  EXPECT_EQ(run(*queue_, {Op::discard, Sectors(5 * block_), Sectors(40 * block_)}), 0);
  if (!keeps_data()) return;
  EXPECT_TRUE(reads_as(*queue_, 0, 5 * block_, std::byte{0x77}));
  EXPECT_TRUE(reads_as(*queue_, 5 * block_, 40 * block_, std::byte{0}));
  EXPECT_TRUE(reads_as(*queue_, 45 * block_, kSectors - 45 * block_, std::byte{0x77}));
}

TEST_P(Stores, ASecureDiscardIsDoneOrRefused) {
  const int expected = store_->geometry().secure_discard ? 0 : EOPNOTSUPP;
  EXPECT_EQ(run(*queue_, {Op::discard, Sectors(0), Sectors(8 * block_), {}, 1, true}), expected);
}

TEST_P(Stores, EmptyOperationsSucceed) {
  EXPECT_EQ(run(*queue_, {Op::read}), 0);
  EXPECT_EQ(run(*queue_, {Op::write, Sectors(kSectors)}), 0);
  EXPECT_EQ(run(*queue_, {Op::discard}), 0);
  EXPECT_EQ(run(*queue_, {Op::flush}), 0);
}

TEST_P(Stores, NothingHappensBeyondTheEnd) {
  const Pages pages(2 * kPageSize);
  pages.fill(std::byte{0x11});
  const Piece piece = pages.piece(0, 2 * kPageSize);
  const std::vector<Sectors> beyond = {Sectors(kSectors),   Sectors(kSectors - 8),    Sectors(kSectors + 8),
                                       Sectors(UINT64_MAX), Sectors(UINT64_MAX - 15), Sectors(std::uint64_t{1} << 55)};
  for (const Sectors sector : beyond) {
    for (const Op op : {Op::read, Op::write, Op::discard}) {
      const bool data = op != Op::discard;
      const Operation operation{op, sector, Sectors(16), data ? std::span(&piece, 1) : std::span<const Piece>(), 1};
      EXPECT_EQ(run(*queue_, operation), EIO) << sector.value();
    }
  }
  EXPECT_TRUE(std::all_of(pages.all().begin(), pages.all().end(), [](std::byte b) { return b == std::byte{0x11}; }));
  if (keeps_data()) {
    EXPECT_TRUE(reads_as(*queue_, kSectors - 8, 8, std::byte{0}));
  }
}

TEST_P(Stores, ASmallerSizeLosesTheTailAndALargerOneBeginsWithZeros) {
  EXPECT_EQ(write_at(*queue_, 0, kSectors, std::byte{0x42}), 0);
  const std::uint64_t half = kSectors / 2 + 3 * block_;  // not at a page's end
  ASSERT_TRUE(store_->resize(Sectors(half)));
  EXPECT_EQ(store_->geometry().capacity, Sectors(half));
  EXPECT_EQ(write_at(*queue_, half, block_, std::byte{0x43}), EIO);
  EXPECT_EQ(write_at(*queue_, half - block_, block_, std::byte{0x44}), 0);
  ASSERT_TRUE(store_->resize(Sectors(4 * kSectors)));
  EXPECT_EQ(store_->geometry().capacity, Sectors(4 * kSectors));
  EXPECT_EQ(write_at(*queue_, 4 * kSectors - block_, block_, std::byte{0x45}), 0);
  if (!keeps_data()) return;
  EXPECT_TRUE(reads_as(*queue_, 0, half - block_, std::byte{0x42}));
  EXPECT_TRUE(reads_as(*queue_, half - block_, block_, std::byte{0x44}));
  EXPECT_TRUE(reads_as(*queue_, half, 4 * kSectors - half - block_, std::byte{0}));
  EXPECT_TRUE(reads_as(*queue_, 4 * kSectors - block_, block_, std::byte{0x45}));
}

// Queues work on all of the store while its size changes: every operation ends once, with success or EIO, and below
// the smallest size never with an error. Sanitizers watch the memory.
TEST_P(Stores, ResizeUnderLoad) {
  constexpr int kRounds = 30;
  const std::uint64_t smallest = 64 * block_;
  std::atomic<bool> stop{false};
  std::atomic<int> batches{0};
  // Two queues that wrote one sector would race for its bytes, as on any disk: so each has every other block.
  const auto load = [&](Queue& queue, std::uint64_t share) {
    Prng random(share);
    const Pages pages(16 * block_ * kSectorSize);
    while (!stop.load()) {
      std::vector<Piece> pieces;
      std::vector<Operation> batch;
      for (std::size_t i = 0; i < 16; ++i)
        pieces.push_back(pages.piece(i * block_ * kSectorSize, block_ * kSectorSize));
      for (std::size_t i = 0; i < 16; ++i) {
        const auto op = static_cast<Op>(random.below(4));
        const Sectors sector((random.below(kSectors / block_ / 2) * 2 + share) * block_);
        batch.push_back({op, sector, Sectors(op == Op::flush ? 0 : block_), {}, i});
        if (op == Op::read || op == Op::write) batch.back().pieces = {&pieces[i], 1};
      }
      queue.submit(batch);
      for (const auto& [cookie, error] : reap_all(queue, batch.size())) {
        const Operation& operation = batch[cookie];
        if (error == 0) continue;
        EXPECT_EQ(error, EIO);
        EXPECT_GT(operation.sector + operation.count, Sectors(smallest)) << "inside at all times";
      }
      batches.fetch_add(1);
    }
  };
  const auto other = must_open_queue(*store_);
  std::thread first([&] { load(*queue_, 0); });
  std::thread second([&] { load(*other, 1); });
  for (int round = 0; round < kRounds; ++round) {
    const int seen = batches.load();
    const auto resized = store_->resize(Sectors(round % 2 == 0 ? smallest : kSectors));
    EXPECT_TRUE(resized) << resized.error().message;
    static_cast<void>(store_->geometry());
    while (batches.load() < seen + 2) std::this_thread::yield();
  }
  stop = true;
  first.join();
  second.join();
}

// Nothing may be written to the caller's memory once the queue is gone.
TEST_P(Stores, TheEndOfAQueueWaitsForWhatIsInFlight) {
  EXPECT_EQ(write_at(*queue_, 0, kSectors, std::byte{0x21}), 0);
  const Pages pages(kSectors * kSectorSize);
  const std::size_t bytes = 8 * block_ * kSectorSize;
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i * bytes < kSectors * kSectorSize; ++i) pieces.push_back(pages.piece(i * bytes, bytes));
  for (std::size_t i = 0; i < pieces.size(); ++i)
    batch.push_back({Op::read, Sectors(i * 8 * block_), Sectors(8 * block_), {&pieces[i], 1}, i});
  queue_->submit(batch);
  queue_.reset();
  pages.fill(std::byte{0x99});
  queue_ = must_open_queue(*store_);
  EXPECT_EQ(run(*queue_, {Op::flush}), 0);
  EXPECT_TRUE(std::all_of(pages.all().begin(), pages.all().end(), [](std::byte b) { return b == std::byte{0x99}; }));
}

TEST_P(Stores, TheDescriptorIsReadableExactlyWhileThereIsSomethingToReap) {
  const int fd = queue_->completion_fd();
  const bool immediate = fd < 0;
  EXPECT_TRUE(immediate || !readable(fd));
  const Pages pages(block_ * kSectorSize);
  const Piece piece = pages.piece(0, block_ * kSectorSize);
  const std::vector<Operation> batch = {{Op::flush, {}, {}, {}, 1},
                                        {Op::read, Sectors(0), Sectors(block_), {&piece, 1}, 2},
                                        {Op::read, Sectors(kSectors), Sectors(block_), {&piece, 1}, 3}};
  queue_->submit(batch);
  unsigned reaped = 0;
  while (reaped < batch.size()) {  // one by one: what is left keeps it readable
    ASSERT_TRUE(immediate || readable(fd, 60'000));
    Finished finished;
    const unsigned n = queue_->reap({&finished, 1});
    ASSERT_TRUE(n == 1 || !immediate) << "without a descriptor everything is there at once";
    reaped += n;
  }
  EXPECT_TRUE(immediate || !readable(fd));
}

const Kind kNull = {"Null", [](Medium&) -> std::string { return "null:1MiB"; }, false};
const Kind kDataKinds[] = {
    {"Ram", [](Medium&) -> std::string { return "ram:1MiB"; }},
    {"FileOnDisk", [](Medium& m) { return "file:1MiB:" + m.disk_file(); }},
    {"FileInMemory", [](Medium& m) { return "file:1MiB:" + m.memory_file(); }},
    {"ThrottledRam", [](Medium&) -> std::string { return "throttled:1000MB/s:20us:ram:1MiB"; }},
    {"ThrottledFile", [](Medium& m) { return "throttled:1000MB/s:20us:file:1MiB:" + m.disk_file(); }},
};
std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}
INSTANTIATE_TEST_SUITE_P(Null, Stores, ::testing::Values(kNull), name_of);
INSTANTIATE_TEST_SUITE_P(Data, Stores, ::testing::ValuesIn(kDataKinds), name_of);
INSTANTIATE_TEST_SUITE_P(Data, DataStores, ::testing::ValuesIn(kDataKinds), name_of);

TEST(NullStore, TouchesNoMemory) {
  const auto store = must_open("null:1GiB");
  const auto queue = must_open_queue(*store);
  const Piece nowhere{nullptr, kPageSize};
  EXPECT_EQ(run(*queue, {Op::read, Sectors(0), Sectors(8), {&nowhere, 1}, 1}), 0);
  EXPECT_EQ(run(*queue, {Op::write, Sectors(0), Sectors(8), {&nowhere, 1}, 2}), 0);
}

TEST(RamStore, ASizeThatCannotBeHadLeavesItAsItWas) {
  const auto store = must_open("ram:1MiB");
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(write_at(*queue, 0, 2048, std::byte{7}), 0);
  EXPECT_FALSE(store->resize(Sectors(std::uint64_t{1} << 41))) << "1 PiB, more than an address space";
  EXPECT_FALSE(store->resize(Sectors(0)));
  EXPECT_EQ(store->geometry().capacity, Sectors(2048));
  EXPECT_TRUE(reads_as(*queue, 0, 2048, std::byte{7}));
  EXPECT_FALSE(open_store("ram:1048576GiB"));
}

TEST(OpenStore, ForwardsWhatTheGrammarRefuses) {
  const auto store = open_store("disk:1GiB");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, EINVAL);
}

}  // namespace
}  // namespace xblk::store::testing
