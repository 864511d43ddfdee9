#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/host/fingerprint.hpp"
#include "agent/host/interrupts.hpp"
#include "agent/host/terminal.hpp"

namespace xblk::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInterruptsText =
    "           CPU0       CPU2       \n"
    "  1:          9          0   IO-APIC    1-edge      i8042\n"
    " 24:          1          2   PCI-MSIX-0000:00:01.0    0-edge      virtio0-config\n"
    "RES:        100        200   Rescheduling interrupts\n"
    "CAL:         30         40   Function call interrupts\n"
    "TLB:          5          7   TLB shootdowns\n"
    "ERR:          3\n"
    "MIS:          0\n";

TEST(Interrupts, RowsAndSums) {
  const auto parsed = parse_interrupts(kInterruptsText).value();
  EXPECT_EQ(parsed.cpus, (std::vector<std::string>{"CPU0", "CPU2"}));
  EXPECT_EQ(parsed.sum("TLB"), 12U);
  EXPECT_EQ(parsed.sum("RES"), 300U);
  EXPECT_EQ(parsed.sum("CAL"), 70U);
  EXPECT_EQ(parsed.rows.at("TLB"), (std::vector<std::uint64_t>{5, 7}));
  EXPECT_EQ(parsed.rows.at("ERR"), (std::vector<std::uint64_t>{3}));
}

TEST(Interrupts, ADescriptionThatStartsWithADigitIsNotACount) {
  const auto parsed = parse_interrupts("  CPU0\n 24: 17 0 0-edge x\n").value();
  EXPECT_EQ(parsed.sum("24"), 17U);
}

TEST(Interrupts, AbsentRowIsAbsentNotZero) {
  EXPECT_EQ(parse_interrupts("  CPU0\nRES: 1\n").value().sum("TLB"), std::nullopt);
}

TEST(Interrupts, RefusesWhatIsNotTheFile) {
  EXPECT_FALSE(parse_interrupts(""));
  EXPECT_FALSE(parse_interrupts("TLB: 1 2\n"));
}

TEST(Interrupts, ThisMachineHasThem) {
  EXPECT_TRUE(read_interrupts());
}

TEST(CpuTime, OwnThreadsAreCounted) {
  const auto before = process_cpu_time(::getpid()).value();
  volatile unsigned spin = 0;
  for (unsigned i = 0; i < 50'000'000; ++i) spin = spin + 1;
  EXPECT_GT(process_cpu_time(::getpid()).value(), before);
  EXPECT_EQ(process_cpu_time(0x7fffffff).error().code, ESRCH);
}

class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "xblk-root-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~FakeRoot() { fs::remove_all(root_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] const fs::path& path() const { return root_; }

 private:
  fs::path root_;
};

TEST(Fingerprint, ReadsWhatIsThere) {
  const FakeRoot root;
  root.put("proc/cpuinfo",
           "processor\t: 0\nmodel name\t: Tester 3000\nmicrocode\t: 0x1\nflags\t\t: fpu hypervisor sse\n");
  root.put("proc/cmdline", "ro quiet ip=10.0.0.2::::secret:eth0 systemd.hostname=secret mitigations=off\n");
  root.put("proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n");
  root.put("proc/loadavg", "0.50 0.25 0.10 1/100 4242\n");
  root.put("proc/sys/vm/max_map_count", "65530\n");
  root.put("proc/xen/capabilities", "control_d\n");
  root.put("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
  root.put("sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n");
  root.put("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  const auto json = fingerprint(root.path());
  EXPECT_EQ(json["cpu"]["model"], "Tester 3000");
  EXPECT_EQ(json["cpu"]["boost"], false);
  EXPECT_EQ(json["kernel"]["command_line"], "ro quiet mitigations=off");
  EXPECT_EQ(json["kernel"]["max_map_count"], 65530);
  EXPECT_EQ(json["kernel"]["mitigations"]["meltdown"], "Mitigation: PTI");
  EXPECT_EQ(json["memory_total_kib"], 8000000);
  EXPECT_EQ(json["load_average"][0], 0.5);
  EXPECT_EQ(json["distribution"], "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(json["virtualisation"]["runs_as_guest"], true);
  EXPECT_EQ(json["virtualisation"]["proc_xen"], true);
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
}

TEST(Fingerprint, AbsentIsAbsent) {
  const FakeRoot root;
  const auto json = fingerprint(root.path());
  EXPECT_TRUE(json["cpu"].empty());
  EXPECT_TRUE(json["kernel"].empty());
  EXPECT_FALSE(json.contains("memory_total_kib"));
  EXPECT_FALSE(json.contains("distribution"));
}

TEST(Fingerprint, NamesNoHost) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const auto json = fingerprint();
  EXPECT_TRUE(json["kernel"].contains("release"));
  // A host called "debian" or "vm" would be found in other words.
  if (std::string(name).size() >= 8) {
    EXPECT_EQ(json.dump().find(name), std::string::npos);
  }
}

TEST(Terminal, Rules) {
  EXPECT_TRUE(decide({.tty = true, .columns = 120, .no_color = nullptr, .term = "xterm"}).colour);
  EXPECT_EQ(decide({.tty = true, .columns = 120, .no_color = nullptr, .term = "xterm"}).columns, 120);
  EXPECT_FALSE(decide({.tty = true, .columns = 0, .no_color = "1", .term = "xterm"}).colour);
  EXPECT_TRUE(decide({.tty = true, .columns = 0, .no_color = "", .term = "xterm"}).colour);
  EXPECT_TRUE(decide({.tty = true, .columns = 0, .no_color = "1", .term = "xterm"}).interactive);
  EXPECT_FALSE(decide({.tty = true, .columns = 0, .no_color = nullptr, .term = "dumb"}).interactive);
  EXPECT_FALSE(decide({.tty = false, .columns = 0, .no_color = nullptr, .term = "xterm"}).interactive);
  EXPECT_EQ(decide({}).columns, 80);
}

}  // namespace
}  // namespace xblk::host
