#pragma once

namespace xblk::cli {

// Documented in xblk.1 and in `xblk --help`; scripts depend on them.
enum ExitCode : int {
  kOk = 0,
  kRegression = 1,
  kUsage = 2,         // or a bad profile
  kInconclusive = 3,  // or not comparable
  kMeasurementFailed = 4,
  kEnvironment = 5,
  kSignalBase = 128,  // plus the signal's number
};

}  // namespace xblk::cli
