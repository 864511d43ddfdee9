// The files and block devices that guests' disks are kept in: what a run does to each, said before it does anything. A
// file that was there before is never written to unless the user has named it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "agent/run/schedule.hpp"

namespace xblk::run {

enum class StoreFileUse {
  create,     // it is not there; removed again at the end
  read,       // it is there, and no point writes: attached read-only
  overwrite,  // it is there, and its data will be lost
};
std::string_view to_string(StoreFileUse use);

struct StoreFile {
  std::filesystem::path path;
  StoreFileUse use = StoreFileUse::create;
  Bytes size;           // as the profile says; 0: as large as it is
  std::string problem;  // why it cannot be used; empty when it can
};

// One for each guest; none when the store is no file. `reads_only`: nothing will be written.
std::vector<StoreFile> store_files(const plan::StoreSpec& store, unsigned guests, bool reads_only);
std::vector<StoreFile> store_files(const Schedule& schedule);

// One line for a person.
std::string describe(const StoreFile& file);

// EACCES for a file that would be overwritten and that `allowed` does not name, by its path or as the profile has it.
Status check_store_files(std::span<const StoreFile> files, const plan::StoreSpec& store,
                         const std::vector<std::string>& allowed);

}  // namespace xblk::run
