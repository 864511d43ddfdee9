// One guest of one visit: its fio process, what both ends of its disk agreed on, and what came out.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/fio/job.hpp"
#include "agent/fio/result.hpp"
#include "agent/fio/verdict.hpp"
#include "agent/host/host.hpp"
#include "agent/metrics/snapshot.hpp"
#include "agent/report/results.hpp"
#include "agent/run/layout.hpp"
#include "agent/toggle/verify.hpp"

namespace xblk::run {

struct GuestOutcome {
  host::ExitStatus exit;
  fio::FioResult result;
  fio::Verdict verdict;
  Result<metrics::Window> window = fail(ENODATA, "no snapshots were read");
};

class GuestRun {
 public:
  static Result<GuestRun> start(host::Host& host, const fio::GuestJob& job, const GuestFiles& files,
                                const toggle::Vbd& vbd);

  // Keys of the negotiated result exist only while both ends are connected: look until true.
  bool verify_connection(toggle::KeyAccess& keys, const toggle::Agreement& agreement);
  [[nodiscard]] bool connection_verified() const { return verification_.has_value() && verification_->ok(); }
  // Both ends said Connected, even if not with what was agreed.
  [[nodiscard]] bool seen_connected() const;
  // The latest look that found both ends connected, else the latest of all.
  [[nodiscard]] const std::optional<toggle::Verification>& verification() const { return verification_; }
  [[nodiscard]] const report::Json& negotiated() const { return negotiated_; }

  [[nodiscard]] host::Process& process() { return *process_; }
  [[nodiscard]] bool ended() { return process_->status().has_value(); }
  void stop();

  // After its end.
  GuestOutcome finish(const fio::Expectation& expectation);

  [[nodiscard]] const toggle::Vbd& vbd() const { return vbd_; }
  [[nodiscard]] const std::string& command() const { return command_; }

 private:
  GuestRun(std::unique_ptr<host::Process> process, std::string command, GuestFiles files, toggle::Vbd vbd)
      : process_(std::move(process)), command_(std::move(command)), files_(std::move(files)), vbd_(vbd) {}

  std::unique_ptr<host::Process> process_;
  std::string command_;
  GuestFiles files_;
  toggle::Vbd vbd_;
  std::optional<toggle::Verification> verification_;
  report::Json negotiated_ = report::Json::object();
};

}  // namespace xblk::run
