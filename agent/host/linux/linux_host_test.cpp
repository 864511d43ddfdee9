#include "agent/host/linux/linux_host.hpp"

#include <csignal>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/host/files.hpp"

namespace xblk::host {
namespace {

using testing::HasSubstr;

class LinuxHostTest : public testing::Test {
 protected:
  LinuxHostTest() : host_(create_linux_host().value()) {}

  std::unique_ptr<Process> shell(const std::string& script, Output output = Capture{}) {
    return host_
        ->spawn({.argv = {"sh", "-c", script}, .standard_output = std::move(output), .standard_error = Capture{}})
        .value();
  }
  ExitStatus finish(Process& process) {
    Process* list[] = {&process};
    EXPECT_EQ(host_->wait(list, host_->now() + seconds(30)), Wake::kExited);
    return process.status().value();
  }
  std::unique_ptr<Host> host_;
};

bool gone(pid_t pid) {
  // A process that has ended but is not yet reaped by init still answers kill(0): look at its state.
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return true;
  const auto at = text.rfind(')');
  return at == std::string::npos || text[at + 2] == 'Z' || text[at + 2] == 'X';
}

bool eventually_gone(pid_t pid) {
  for (int i = 0; i < 1000 && !gone(pid); ++i) ::usleep(10'000);
  return gone(pid);
}

TEST_F(LinuxHostTest, CapturesBothStreamsAndTheExitCode) {
  const auto process = shell("echo out; echo err >&2; exit 3");
  const auto status = finish(*process);
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_FALSE(status.success());
  EXPECT_EQ(process->captured_output(), "out\n");
  EXPECT_EQ(process->captured_error(), "err\n");
}

TEST_F(LinuxHostTest, CaptureIsBoundedAndTheChildIsNotBlocked) {
  const auto process = shell("head -c 3000000 /dev/zero", Capture{1000});
  EXPECT_TRUE(finish(*process).success());
  EXPECT_EQ(process->captured_output().size(), 1000U);
  EXPECT_TRUE(process->capture_truncated());
}

TEST_F(LinuxHostTest, EnvironmentAndDirectory) {
  const auto process = host_->spawn({.argv = {"sh", "-c", "echo $XBLK_TEST; pwd"},
                                     .environment = {{"XBLK_TEST", "a b"}},
                                     .directory = "/",
                                     .standard_output = Capture{}});
  ASSERT_TRUE(process);
  finish(**process);
  EXPECT_EQ((*process)->captured_output(), "a b\n/\n");
}

TEST_F(LinuxHostTest, MissingProgramIsOneClearLine) {
  const auto by_name = host_->spawn({.argv = {"xblk-no-such-program"}});
  ASSERT_FALSE(by_name);
  EXPECT_THAT(by_name.error().message, HasSubstr("not found in PATH"));
  const auto by_path = host_->spawn({.argv = {"/xblk-no-such-program"}});
  ASSERT_FALSE(by_path);
  EXPECT_EQ(by_path.error().code, ENOENT);
  const auto bad_file = host_->spawn({.argv = {"true"}, .standard_output = ToFile{"/xblk-no-such-directory/x"}});
  ASSERT_FALSE(bad_file);
  EXPECT_THAT(bad_file.error().message, HasSubstr("/xblk-no-such-directory/x"));
}

TEST_F(LinuxHostTest, TerminateBeginsWithSigint) {
  const auto process = shell("trap 'echo got INT; exit 7' INT; echo ready; while :; do sleep 0.05; done");
  while (process->captured_output().empty()) static_cast<void>(process->status());
  const auto status = process->terminate(seconds(10));
  EXPECT_EQ(status.exit_code, 7);
  EXPECT_TRUE(status.ended_by_us);
  EXPECT_THAT(process->captured_output(), HasSubstr("got INT"));
}

TEST_F(LinuxHostTest, TerminateKillsAStubbornGroupWithItsWorkers) {
  // A worker in the background outlived fio's parent in our own runs; the group must not.
  const auto process = shell("trap '' INT TERM; (trap '' INT TERM; while :; do sleep 1; done) & echo $!; wait; wait");
  while (process->captured_output().find('\n') == std::string::npos) static_cast<void>(process->status());
  const auto worker = static_cast<pid_t>(std::stol(process->captured_output()));
  const auto status = process->terminate(millis(50));
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_TRUE(eventually_gone(worker));
}

TEST_F(LinuxHostTest, DestructionLeavesNoProcess) {
  pid_t pid = 0;
  {
    const auto process = shell("exec sleep 1000");
    pid = process->pid();
    EXPECT_FALSE(gone(pid));
  }
  EXPECT_TRUE(gone(pid));
}

TEST_F(LinuxHostTest, ChildrenDieWithAParentThatIsKilled) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    auto child = host_->spawn({.argv = {"sleep", "1000"}});
    const pid_t pid = child ? (*child)->pid() : -1;
    const ssize_t ignored = ::write(report[1], &pid, sizeof pid);
    static_cast<void>(ignored);
    ::pause();
    ::_exit(0);
  }
  pid_t child = -1;
  ASSERT_EQ(::read(report[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  EXPECT_FALSE(gone(child));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(eventually_gone(child));
  ::close(report[0]);
  ::close(report[1]);
}

TEST_F(LinuxHostTest, DeadlinePasses) {
  const auto process = shell("exec sleep 1000");
  Process* list[] = {process.get()};
  EXPECT_EQ(host_->wait(list, host_->now() + millis(10)), Wake::kDeadline);
  EXPECT_FALSE(process->status());
}

TEST_F(LinuxHostTest, SignalsHaveTwoStages) {
  EXPECT_EQ(host_->signals().stage, 0);
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(host_->wait({}, host_->now() + seconds(30)), Wake::kSignal);
  EXPECT_EQ(host_->signals(), (SignalState{1, SIGINT}));
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(host_->wait({}, host_->now() + seconds(30)), Wake::kSignal);
  EXPECT_EQ(host_->signals(), (SignalState{2, SIGTERM}));
  // Once told, the same state does not wake again.
  EXPECT_EQ(host_->wait({}, host_->now() + millis(1)), Wake::kDeadline);
}

TEST(Signals, HangUpIsOneOfThemUnlessItIsIgnored) {
  for (const bool ignored : {false, true}) {
    const auto former = ::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
    {
      auto watch = SignalWatch::create();
      ASSERT_TRUE(watch) << watch.error().message;
      ::kill(::getpid(), SIGHUP);
      EXPECT_EQ(watch->poll(), (ignored ? SignalState{} : SignalState{1, SIGHUP}));
    }
    ::signal(SIGHUP, former);
  }
}

TEST_F(LinuxHostTest, TerminalInterruptDoesNotReachTheChild) {
  const auto process = shell("exec sleep 1000");
  EXPECT_NE(::getpgid(process->pid()), ::getpgrp());
  EXPECT_EQ(::getpgid(process->pid()), process->pid());
}

TEST_F(LinuxHostTest, SeedsDiffer) {
  EXPECT_NE(host_->random_seed(), host_->random_seed());
}

TEST(ExitStatus, Describes) {
  EXPECT_EQ((ExitStatus{.exit_code = 1}).describe(), "exit code 1");
  EXPECT_EQ((ExitStatus{.exit_code = 0, .signal = SIGKILL}).describe(), "killed by SIGKILL");
}

}  // namespace
}  // namespace xblk::host
