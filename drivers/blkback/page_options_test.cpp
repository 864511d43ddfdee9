// From policy to options: which path is in force, and units.
#include "drivers/blkback/page_options.hpp"

#include <gtest/gtest.h>

namespace xblk::blkback {
namespace {

TEST(PageOptions, PersistentGrantsTakeTheDataPathOver) {
  blkif::BackPolicy policy;
  for (const auto path : {blkif::DataPath::map, blkif::DataPath::copy, blkif::DataPath::hybrid}) {
    policy.data_path = path;
    EXPECT_EQ(page_options(policy, /*persistent=*/true).path, DataPath::persistent);
  }
  policy.data_path = blkif::DataPath::map;
  EXPECT_EQ(page_options(policy, /*persistent=*/false).path, DataPath::map);
  policy.data_path = blkif::DataPath::copy;
  EXPECT_EQ(page_options(policy, /*persistent=*/false).path, DataPath::copy);
  policy.data_path = blkif::DataPath::hybrid;
  EXPECT_EQ(page_options(policy, /*persistent=*/false).path, DataPath::hybrid);
}

TEST(PageOptions, NoUnusedTimeMeansNever) {
  blkif::BackPolicy policy;
  policy.persistent_unused_ms = 0;
  EXPECT_EQ(page_options(policy, true).unused_limit, kForever);
  policy.persistent_unused_ms = 250;
  EXPECT_EQ(page_options(policy, true).unused_limit, millis(250));
}

}  // namespace
}  // namespace xblk::blkback
