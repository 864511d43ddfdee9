#include "agent/toggle/journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "agent/host/files.hpp"

namespace xblk::toggle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kJournalVersion = 1;
constexpr std::size_t kMaxJournalBytes = std::size_t{16} << 20;
constexpr std::string_view kSuffix = ".journal";

// xenstore's values are bytes, JSON's strings are Unicode: each byte becomes the code point of that number.
std::string to_text(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> to_bytes(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
      continue;
    }
    if ((byte != 0xC2 && byte != 0xC3) || i + 1 == text.size()) return std::nullopt;  // above U+00FF
    bytes += static_cast<char>(((byte & 0x03) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3F));
  }
  return bytes;
}

json value_to_json(const std::optional<std::string>& value) {
  return value ? json(to_text(*value)) : json(nullptr);
}

std::string to_line(const KeyChange& change) {
  return json{{"device", to_text(change.device)},
              {"path", to_text(change.path)},
              {"before", value_to_json(change.before)},
              {"after", value_to_json(change.after)}}
             .dump() +
         "\n";
}

// False: not of this form.
bool read_value(const json& object, const char* key, std::optional<std::string>& value) {
  const auto it = object.find(key);
  if (it == object.end()) return false;
  if (it->is_null()) return true;
  if (!it->is_string()) return false;
  value = to_bytes(it->get<std::string>());
  return value.has_value();
}

bool read_change(const json& object, KeyChange& change) {
  std::optional<std::string> device;
  std::optional<std::string> path;
  if (!object.is_object() || !read_value(object, "device", device) || !read_value(object, "path", path) ||
      !read_value(object, "before", change.before) || !read_value(object, "after", change.after)) {
    return false;
  }
  if (!device || !path || !path->starts_with(*device + "/")) return false;
  change.device = *device;
  change.path = *path;
  return true;
}

std::optional<std::uint64_t> read_number(const json& object, const char* key, std::uint64_t max) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned() || it->get<std::uint64_t>() > max) return std::nullopt;
  return it->get<std::uint64_t>();
}

bool read_attached(const json& object, Vbd& vbd) {
  if (!object.is_object() || !object.contains("attached") || !object["attached"].is_object()) return false;
  const auto guest = read_number(object["attached"], "guest", UINT16_MAX);
  const auto device = read_number(object["attached"], "device", UINT32_MAX);
  if (!guest || !device) return false;
  vbd = {DomId(static_cast<std::uint16_t>(*guest)), static_cast<std::uint32_t>(*device)};
  return true;
}

bool read_created(const json& object, CreatedFile& file) {
  if (!object.is_object() || !object.contains("created") || !object["created"].is_object()) return false;
  std::optional<std::string> path;
  const auto device = read_number(object["created"], "device", UINT64_MAX);
  const auto inode = read_number(object["created"], "inode", UINT64_MAX);
  if (!read_value(object["created"], "path", path) || !path || !path->starts_with('/') || !device || !inode)
    return false;
  file = {*path, *device, *inode};
  return true;
}

// Any line but the first.
bool read_entry(const json& object, JournalContent& content) {
  if (Vbd vbd; read_attached(object, vbd)) {
    content.attached.push_back(vbd);
    return true;
  }
  if (CreatedFile file; read_created(object, file)) {
    content.created.push_back(std::move(file));
    return true;
  }
  KeyChange change;
  if (!read_change(object, change)) return false;
  content.changes.push_back(std::move(change));
  return true;
}

bool read_header(const json& object, JournalContent& content) {
  if (!object.is_object() || object.value("xblk_journal", json()) != json(kJournalVersion)) return false;
  std::optional<std::string> xenstore;
  if (!read_value(object, "xenstore", xenstore) || !xenstore) return false;
  const auto pid = object.find("pid");
  const auto time = object.find("unix_time_seconds");
  if (pid == object.end() || !pid->is_number_integer() || time == object.end() || !time->is_number_integer())
    return false;
  std::optional<std::string> run;
  if (object.contains("run") && (!read_value(object, "run", run) || !run)) return false;
  content.run = run.value_or("");  // journals of earlier versions do not say
  content.xenstore = *xenstore;
  content.pid = pid->get<std::int64_t>();
  content.unix_time_seconds = time->get<std::int64_t>();
  return true;
}

// A line that did not get through is taken back, so that the next one does not continue it.
Status append(int fd, const std::string& text, const fs::path& path) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const ssize_t written = ::write(fd, text.data(), text.size());
  int code = written < 0 ? errno : ENOSPC;
  const bool complete = written >= 0 && static_cast<std::size_t>(written) == text.size();
  if (complete && ::fsync(fd) == 0) return {};
  if (complete) code = errno;
  static_cast<void>(::ftruncate(fd, size));
  return tl::unexpected(host::storage_error(code, "write", path));
}

bool locked_by_another(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Result<Journal> Journal::create(const fs::path& directory, const JournalOwner& owner) {
  std::error_code error;
  if (!fs::create_directories(directory, error) && error) {
    return tl::unexpected(host::storage_error(error.value(), "create", directory));
  }
  const json header{{"xblk_journal", kJournalVersion},
                    {"xenstore", to_text(owner.xenstore)},
                    {"run", to_text(owner.run)},
                    {"pid", ::getpid()},
                    {"unix_time_seconds", owner.unix_time_seconds}};
  for (int number = 0;; ++number) {
    const fs::path path =
        directory / fmt::format("toggle-{}-{}-{}{}", owner.unix_time_seconds, ::getpid(), number, kSuffix);
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST) continue;
    if (!fd) return tl::unexpected(host::storage_error(errno, "create", path));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno("cannot lock " + path.string());
    if (auto status = append(fd.get(), header.dump() + "\n", path); !status) return tl::unexpected(status.error());
    if (auto status = host::sync_directory(directory); !status) return tl::unexpected(status.error());
    return Journal(path, std::move(fd));
  }
}

Status Journal::record(std::span<const KeyChange> changes) {
  std::string lines;
  for (const KeyChange& change : changes) lines += to_line(change);
  return append(fd_.get(), lines, path_);
}

Status Journal::record_attach(const Vbd& vbd) {
  const json line{{"attached", {{"guest", vbd.guest.value()}, {"device", vbd.device}}}};
  return append(fd_.get(), line.dump() + "\n", path_);
}

Status Journal::record_created(const CreatedFile& file) {
  const json line{{"created", {{"path", to_text(file.path.string())}, {"device", file.device}, {"inode", file.inode}}}};
  return append(fd_.get(), line.dump() + "\n", path_);
}

Status Journal::close() {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return tl::unexpected(host::storage_error(errno, "remove", path_));
  }
  fd_.reset();
  return host::sync_directory(path_.parent_path());
}

Result<JournalContent> read_journal(const fs::path& file) {
  const auto text = host::read_file(file, kMaxJournalBytes);
  if (!text) return tl::unexpected(text.error());
  return parse_journal(*text, file.string());
}

Result<JournalContent> parse_journal(std::string_view rest, const std::string& file) {
  JournalContent content;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      content.truncated = true;
      break;
    }
    const json line = json::parse(rest.substr(0, end), nullptr, false);
    rest.remove_prefix(end + 1);
    const bool understood = number == 1 ? read_header(line, content) : read_entry(line, content);
    if (!understood) {
      return fail(EINVAL, fmt::format("{}:{}: not a line of an xblk journal; nothing was restored", file, number));
    }
  }
  return content;
}

Result<std::vector<fs::path>> abandoned_journals(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  if (!fs::exists(directory, error)) return found;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const fs::path& file = it->path();
    if (file.extension() == kSuffix && !locked_by_another(file)) found.push_back(file);
  }
  if (error) return tl::unexpected(host::storage_error(error.value(), "read", directory));
  std::sort(found.begin(), found.end());
  return found;
}

Result<fs::path> default_state_directory() {
  // An XDG path that is not absolute must be ignored (XDG Base Directory Specification).
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/')
    return fs::path(state) / "xblk";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    return fs::path(home) / ".local" / "state" / "xblk";
  }
  return fail(ENOENT, "neither XDG_STATE_HOME nor HOME names a directory for the journal; set one of them");
}

}  // namespace xblk::toggle
