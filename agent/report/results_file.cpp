#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "agent/report/results.hpp"

namespace xblk::report {
namespace {

// Results of a large matrix are a few MiB; a file beyond this was not written by xblk.
constexpr std::uintmax_t kResultsBytesMax = 256u << 20;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

Status write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno("cannot write " + path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename is durable only once its directory is. File systems that cannot sync a directory say EINVAL; that is fine.
Status sync_directory(const std::string& path) {
  const FileDescriptor directory(::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return fail_errno("cannot open the directory of " + path);
  if (::fsync(directory.get()) != 0 && errno != EINVAL) return fail_errno("cannot sync the directory of " + path);
  return {};
}

Status write_and_sync(const std::string& temporary, std::string_view content, const std::string& path) {
  const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return fail_errno("cannot create " + temporary);
  if (auto written = write_all(file.get(), content, path); !written) return written;
  if (::fsync(file.get()) != 0) return fail_errno("cannot write " + path);
  return {};
}

}  // namespace

Status write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  if (auto written = write_and_sync(temporary, content, path); !written) {
    ::unlink(temporary.c_str());
    return written;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    auto error = fail_errno("cannot rename " + temporary + " to " + path);
    ::unlink(temporary.c_str());
    return error;
  }
  return sync_directory(path);
}

Status write_results(const std::string& path, const Results& results) {
  // fio and peers may hand us bytes that are not UTF-8; they are replaced, so that the file is always valid JSON.
  return write_file_atomically(path, to_json(results).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<Results> load_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno("cannot read " + path);
  file.seekg(0, std::ios::end);
  const auto size = file.tellg();
  if (size < 0) return fail(EINVAL, path + ": not a regular file");
  if (static_cast<std::uintmax_t>(size) > kResultsBytesMax) return fail(EFBIG, path + ": larger than 256 MiB");
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  return from_json(text.str(), path);
}

}  // namespace xblk::report
