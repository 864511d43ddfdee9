// Result<T>: a value or an Error. For everything that a peer, a device, the OS or a user can cause.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace xblk {

// `code` is an errno value, because callers act on it (ENOMEM degrades, EAGAIN retries, ENOENT waits);
// `message` is one line for a person: what was wrong, where, what to do.
struct Error {
  int code = 0;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(int code, std::string message) {
  return tl::unexpected<Error>({code, std::move(message)});
}

// `what` names the call and its object; the text of errno is appended.
inline tl::unexpected<Error> fail_errno(std::string what) {
  const int code = errno;
  return fail(code, std::move(what) + ": " + std::strerror(code));
}

inline tl::unexpected<Error> forward(const Error& error, const std::string& context) {
  return fail(error.code, context + ": " + error.message);
}

}  // namespace xblk
