// The hypervisor that xenstored believes it runs on: preloaded into Debian's unmodified daemon, this library answers
// the libxenctrl, libxengnttab and libxenevtchn calls it makes by asking the host process (shim_protocol.hpp).
//
// Built without sanitizers and without libstdc++ whatever the host is built with: it runs inside a program that is not
// ours. xenstored is single-threaded, so nothing here locks.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

extern "C" {
#include <xenctrl.h>
#include <xenevtchn.h>
#include <xengnttab.h>
}

#include "drivers/hypervisor/xenstored/shim_protocol.hpp"

#define SHIM_EXPORT __attribute__((visibility("default")))

namespace {

using namespace xblk::hypervisor;

constexpr size_t kPage = 4096;
int g_event_socket = -1;

// Handles are opaque to xenstored; it only tests them for NULL.
template <class T>
T* any_handle() {
  static char object;
  return reinterpret_cast<T*>(&object);
}

// The host process is the hypervisor: without it there is nothing to serve and nobody to tell.
[[noreturn]] void host_is_gone() {
  _exit(1);
}

int control_socket() {
  const char* number = getenv(kShimControlVariable);
  if (number == nullptr) host_is_gone();
  return atoi(number);
}

// Receives one reply, and the descriptor that may come with it (-1 when none does).
ShimReply receive_reply(int* descriptor) {
  ShimReply reply{};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&reply, sizeof reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  ssize_t got;
  do {
    got = recvmsg(control_socket(), &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof reply) host_is_gone();
  *descriptor = -1;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
    memcpy(descriptor, CMSG_DATA(rights), sizeof *descriptor);
  return reply;
}

// One question to the host. False with errno set when the host refuses.
bool ask(const ShimRequest& request, ShimReply* reply, int* descriptor) {
  ssize_t sent;
  do {
    sent = send(control_socket(), &request, sizeof request, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof request) host_is_gone();
  *reply = receive_reply(descriptor);
  errno = reply->error;
  return reply->error == 0;
}

bool ask(const ShimRequest& request, ShimReply* reply) {
  int descriptor = -1;
  const bool answered = ask(request, reply, &descriptor);
  if (descriptor >= 0) close(descriptor);
  return answered;
}

int memory_file(const char* name, const char* content, size_t size) {
  const int fd = memfd_create(name, 0);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0 || pwrite(fd, content, strlen(content), 0) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// dom0's own ring: the daemon wants to map one at start; dom0's clients use the socket, so nobody ever sits on its
// other end. -2: not one of Xen's files.
int open_of_xen(const char* path) {
  if (strcmp(path, "/proc/xen/xsd_port") == 0) return memory_file("xsd_port", "1\n", 2);
  if (strcmp(path, "/proc/xen/xsd_kva") == 0) return memory_file("xsd_kva", "", kPage);
  return -2;
}

}  // namespace

extern "C" {

SHIM_EXPORT int open(const char* path, int flags, ...) {
  const int ours = open_of_xen(path);
  if (ours != -2) return ours;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return openat(AT_FDCWD, path, flags, mode);
}

SHIM_EXPORT xc_interface* xc_interface_open(xentoollog_logger*, xentoollog_logger*, unsigned) {
  return any_handle<xc_interface>();
}

SHIM_EXPORT int xc_interface_close(xc_interface*) {
  return 0;
}

// Xen returns the first domain with an id >= `first`; xenstored asks for one and compares, so only that one is offered.
SHIM_EXPORT int xc_domain_getinfo(xc_interface*, uint32_t first, unsigned, xc_dominfo_t* info) {
  ShimReply reply;
  if (!ask({ShimOperation::kDomainInfo, first, 0}, &reply)) return -1;
  const auto state = static_cast<DomainState>(reply.value);
  if (state == DomainState::kAbsent) return 0;
  memset(info, 0, sizeof *info);
  info->domid = first;
  info->running = state == DomainState::kRunning;
  info->shutdown = state == DomainState::kShutdown;
  return 1;
}

SHIM_EXPORT xengnttab_handle* xengnttab_open(xentoollog_logger*, unsigned) {
  return any_handle<xengnttab_handle>();
}

SHIM_EXPORT int xengnttab_close(xengnttab_handle*) {
  return 0;
}

SHIM_EXPORT int xengnttab_set_max_grants(xengnttab_handle*, uint32_t) {
  return 0;
}

// xenstored maps one thing only: GNTTAB_RESERVED_XENSTORE, the domain's ring page.
SHIM_EXPORT void* xengnttab_map_grant_ref(xengnttab_handle*, uint32_t domain, uint32_t, int protection) {
  ShimReply reply;
  int fd = -1;
  if (!ask({ShimOperation::kMapRing, domain, 0}, &reply, &fd)) return nullptr;
  void* page = mmap(nullptr, kPage, protection, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : page;
}

SHIM_EXPORT int xengnttab_unmap(xengnttab_handle*, void* address, uint32_t count) {
  return munmap(address, count * kPage);
}

SHIM_EXPORT xenevtchn_handle* xenevtchn_open(xentoollog_logger*, unsigned) {
  ShimReply reply;
  if (!ask({ShimOperation::kOpenEvents, 0, 0}, &reply, &g_event_socket)) return nullptr;
  return any_handle<xenevtchn_handle>();
}

// Only a live update of the daemon would call it, and that needs the descriptors of a real event-channel device.
SHIM_EXPORT xenevtchn_handle* xenevtchn_fdopen(xentoollog_logger*, int, unsigned) {
  errno = ENOSYS;
  return nullptr;
}

SHIM_EXPORT int xenevtchn_close(xenevtchn_handle*) {
  return close(g_event_socket);
}

SHIM_EXPORT int xenevtchn_fd(xenevtchn_handle*) {
  return g_event_socket;
}

SHIM_EXPORT xenevtchn_port_or_error_t xenevtchn_bind_interdomain(xenevtchn_handle*, uint32_t domain,
                                                                 evtchn_port_t remote) {
  ShimReply reply;
  return ask({ShimOperation::kBind, domain, remote}, &reply) ? static_cast<int>(reply.value) : -1;
}

SHIM_EXPORT xenevtchn_port_or_error_t xenevtchn_bind_virq(xenevtchn_handle*, unsigned) {
  ShimReply reply;
  return ask({ShimOperation::kBindVirq, 0, 0}, &reply) ? static_cast<int>(reply.value) : -1;
}

SHIM_EXPORT int xenevtchn_unbind(xenevtchn_handle*, evtchn_port_t port) {
  ShimReply reply;
  return ask({ShimOperation::kUnbind, 0, port}, &reply) ? 0 : -1;
}

// Events are never masked: the host sends one message per event and a message is consumed by being read.
SHIM_EXPORT int xenevtchn_unmask(xenevtchn_handle*, evtchn_port_t) {
  return 0;
}

SHIM_EXPORT int xenevtchn_notify(xenevtchn_handle*, evtchn_port_t port) {
  const ShimEvent event{port};
  ssize_t sent;
  do {
    sent = send(g_event_socket, &event, sizeof event, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof event) host_is_gone();
  return 0;
}

SHIM_EXPORT xenevtchn_port_or_error_t xenevtchn_pending(xenevtchn_handle*) {
  ShimEvent event{};
  ssize_t got;
  do {
    got = recv(g_event_socket, &event, sizeof event, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof event) host_is_gone();
  return static_cast<int>(event.port);
}

}  // extern "C"
