#include "agent/run/store_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/host/files.hpp"
#include "agent/run/load.hpp"

namespace xblk::run {
namespace {

namespace fs = std::filesystem;

void look_at_absent(StoreFile& file) {
  file.use = StoreFileUse::create;
  if (file.size == Bytes(0)) {
    file.problem = fmt::format("no such file; write file:SIZE:{} to have it created", file.path.string());
  } else if (const fs::path parent = file.path.parent_path(); ::access(parent.c_str(), W_OK | X_OK) != 0) {
    file.problem = host::storage_error(errno, "create a file in", parent).message;
  } else if (const auto space = host::check_space(parent, file.size); !space) {
    file.problem = space.error().message;
  }
}

void look_at_present(StoreFile& file, const struct stat& facts, bool reads_only) {
  const bool regular = S_ISREG(facts.st_mode);
  if (!regular && !S_ISBLK(facts.st_mode)) {
    file.problem = S_ISDIR(facts.st_mode) ? "is a directory" : "is neither a file nor a block device";
    return;
  }
  const bool resized =
      regular && file.size != Bytes(0) && file.size != Bytes(static_cast<std::uint64_t>(facts.st_size));
  file.use = reads_only && !resized ? StoreFileUse::read : StoreFileUse::overwrite;
  const int mode = file.use == StoreFileUse::read ? R_OK : R_OK | W_OK;
  if (::access(file.path.c_str(), mode) != 0) file.problem = host::storage_error(errno, "use", file.path).message;
}

StoreFile look_at(const plan::StoreSpec& store, unsigned guest, bool reads_only) {
  StoreFile file{.path = plan::path_of_guest(store, guest), .size = to_bytes(store.size)};
  struct stat facts {};
  if (::stat(file.path.c_str(), &facts) == 0) {
    look_at_present(file, facts, reads_only);
  } else if (errno == ENOENT) {
    look_at_absent(file);
  } else {
    file.problem = std::strerror(errno);
  }
  return file;
}

}  // namespace

std::string_view to_string(StoreFileUse use) {
  switch (use) {
    case StoreFileUse::create:
      return "create";
    case StoreFileUse::read:
      return "read";
    case StoreFileUse::overwrite:
      return "overwrite";
  }
  return "overwrite";
}

std::vector<StoreFile> store_files(const plan::StoreSpec& store, unsigned guests, bool reads_only) {
  std::vector<StoreFile> files;
  if (store.kind != plan::StoreSpec::Kind::file) return files;
  for (unsigned guest = 1; guest <= guests; ++guest) files.push_back(look_at(store, guest, reads_only));
  return files;
}

std::vector<StoreFile> store_files(const Schedule& schedule) {
  unsigned guests = 0;
  bool reads_only = true;
  for (const plan::Point& point : schedule.points) {
    guests = std::max(guests, point.guests);
    reads_only = reads_only && expectation_of(point).ways == std::set{fio::Way::kRead};
  }
  return store_files(schedule.profile.store, guests, reads_only);
}

std::string describe(const StoreFile& file) {
  const std::string path = file.path.string();
  if (!file.problem.empty()) return fmt::format("{}: cannot be used: {}", path, file.problem);
  switch (file.use) {
    case StoreFileUse::create:
      return fmt::format("{}: will be created, {} without blocks, and removed at the end", path,
                         plan::format_size(file.size));
    case StoreFileUse::read:
      return fmt::format("{}: is there and is only read: attached read-only", path);
    case StoreFileUse::overwrite:
      return fmt::format("{}: is there, and WHAT IS IN IT WILL BE OVERWRITTEN; 'xblk run' wants --overwrite {}", path,
                         path);
  }
  return path;
}

Status check_store_files(std::span<const StoreFile> files, const plan::StoreSpec& store,
                         const std::vector<std::string>& allowed) {
  const auto named = [&](const std::string& path) {
    return std::find(allowed.begin(), allowed.end(), path) != allowed.end();
  };
  for (const StoreFile& file : files) {
    if (!file.problem.empty()) return fail(EINVAL, describe(file));
    if (file.use != StoreFileUse::overwrite || named(file.path.string()) || named(store.path)) continue;
    return fail(EACCES, fmt::format("{} exists, and what is in it would be overwritten; if that is what you want, add "
                                    "--overwrite {}",
                                    file.path.string(), file.path.string()));
  }
  return {};
}

}  // namespace xblk::run
