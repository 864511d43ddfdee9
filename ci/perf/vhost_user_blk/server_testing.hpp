// A real qemu-storage-daemon with a vhost-user-blk export, for tests.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "drivers/fio/fio_testing.hpp"

namespace xblk::vhost_user {

class StorageDaemon {
 public:
  // `disk`: what --blockdev takes besides the name; see raw_disk() and null_disk().
  StorageDaemon(const std::string& disk, unsigned queues) {
    pid_ = spawn({"qemu-storage-daemon", "--blockdev", disk + ",node-name=disk", "--export",
                  "type=vhost-user-blk,id=export,node-name=disk,writable=on,num-queues=" + std::to_string(queues) +
                      ",addr.type=unix,addr.path=" + socket()});
    while (!std::filesystem::exists(socket())) {
      if (::waitpid(pid_, nullptr, WNOHANG) != 0) throw std::runtime_error("qemu-storage-daemon does not start");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ~StorageDaemon() { end(SIGTERM); }
  StorageDaemon(const StorageDaemon&) = delete;
  StorageDaemon& operator=(const StorageDaemon&) = delete;

  [[nodiscard]] std::string socket() const { return folder_.file("vhost-user.sock"); }
  [[nodiscard]] const fio_engine::TemporaryFolder& folder() const { return folder_; }
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  static pid_t spawn(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }

  fio_engine::TemporaryFolder folder_;
  pid_t pid_ = 0;
};

// A sparse file of that size, unlinked with its folder.
inline std::string raw_disk(const fio_engine::TemporaryFolder& folder, std::uint64_t bytes) {
  const std::string path = folder.file("disk.raw");
  std::ofstream(path).close();
  std::filesystem::resize_file(path, bytes);
  return "driver=file,discard=unmap,filename=" + path;
}
inline std::string null_disk(std::uint64_t bytes) {
  return "driver=null-co,read-zeroes=on,size=" + std::to_string(bytes);
}

}  // namespace xblk::vhost_user
