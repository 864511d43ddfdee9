#include "drivers/hypervisor/xenstored/xenbus_mux.hpp"

extern "C" {
#include <errno.h>

#include <xen/io/xs_wire.h>
}

#include <charconv>
#include <cstring>
#include <optional>

namespace xblk::hypervisor {
namespace {

constexpr char kTokenSeparator = ':';

std::string token_on_wire(XenbusMux::ClientId id, const std::string& token) {
  return std::to_string(id) + kTokenSeparator + token;
}

// A payload of NUL-terminated strings; nullopt when the last one is not terminated.
std::optional<std::vector<std::string>> split_strings(std::string_view payload) {
  if (payload.empty() || payload.back() != '\0') return std::nullopt;
  std::vector<std::string> strings;
  while (!payload.empty()) {
    const std::size_t end = payload.find('\0');
    strings.emplace_back(payload.substr(0, end));
    payload.remove_prefix(end + 1);
  }
  return strings;
}

std::string join_strings(const std::string& first, const std::string& second) {
  std::string joined = first;
  joined += '\0';
  joined += second;
  joined += '\0';
  return joined;
}

bool is_error(const std::string& payload, std::string_view errno_name) {
  return std::string_view(payload.c_str()) == errno_name;
}

}  // namespace

XenbusMux::ClientId XenbusMux::add_client() {
  const ClientId id = next_client_++;
  clients_[id];
  return id;
}

void XenbusMux::remove_client(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const Client client = std::move(found->second);
  clients_.erase(found);
  for (const std::uint32_t transaction : client.transactions) abort_transaction(transaction);
  for (const Watch& watch : client.watches) drop_watch(watch);
}

bool XenbusMux::from_client(ClientId id, std::string_view bytes) {
  clients_.at(id).input += bytes;
  return resume(id);
}

bool XenbusMux::wants_input(ClientId id) const {
  return clients_.at(id).outstanding < kMaxRequestsPerClient && requests_.size() < kMaxRequests;
}

bool XenbusMux::resume(ClientId id) {
  Client& client = clients_.at(id);
  Header header;
  std::string payload;
  bool broken = false;
  while (wants_input(id) && next_message(client.input, header, payload, broken))
    handle_request(id, client, header, std::move(payload));
  return !broken;
}

// Takes one whole message off the front of `stream`. The length is checked before anything is waited for or copied.
bool XenbusMux::next_message(std::string& stream, Header& header, std::string& payload, bool& broken) {
  static_assert(sizeof(Header) == sizeof(xsd_sockmsg));
  if (stream.size() < sizeof header) return false;
  std::memcpy(&header, stream.data(), sizeof header);
  broken = header.length > XENSTORE_PAYLOAD_MAX;
  if (broken || stream.size() < sizeof header + header.length) return false;
  payload = stream.substr(sizeof header, header.length);
  stream.erase(0, sizeof header + header.length);
  return true;
}

void XenbusMux::handle_request(ClientId id, Client& client, const Header& header, std::string payload) {
  if (header.transaction_id != 0 && !client.transactions.contains(header.transaction_id))
    return answer_error(id, client, header, "ENOENT");
  switch (header.type) {
    case XS_WATCH:
    case XS_UNWATCH:
      return send_watch_request(id, client, header, payload);
    case XS_RESET_WATCHES:
      // Would take the other clients' watches along.
      return answer_error(id, client, header, "ENOSYS");
    default:
      return send({id, header.request_id, header.type, header.transaction_id, {}}, header, payload);
  }
}

void XenbusMux::send_watch_request(ClientId id, Client& client, const Header& header, const std::string& payload) {
  const auto strings = split_strings(payload);
  if (!strings || strings->size() < 2) return answer_error(id, client, header, "EINVAL");
  Watch watch{(*strings)[0], token_on_wire(id, (*strings)[1])};
  const std::string rewritten = join_strings(watch.first, watch.second);
  if (rewritten.size() > XENSTORE_PAYLOAD_MAX) return answer_error(id, client, header, "E2BIG");
  send({id, header.request_id, header.type, header.transaction_id, std::move(watch)}, header, rewritten);
}

void XenbusMux::send(Request request, Header header, std::string_view payload) {
  const auto client = clients_.find(request.client);
  if (client != clients_.end()) ++client->second.outstanding;
  header.request_id = next_request_++;
  header.length = static_cast<std::uint32_t>(payload.size());
  requests_[header.request_id] = std::move(request);
  to_daemon_.append(reinterpret_cast<const char*>(&header), sizeof header);
  to_daemon_ += payload;
}

void XenbusMux::answer_error(ClientId id, Client& client, const Header& request, std::string_view errno_name) {
  Header header = request;
  header.type = XS_ERROR;
  queue(id, client, header, std::string(errno_name) + '\0');
}

void XenbusMux::queue(ClientId id, Client& client, const Header& header, std::string_view payload) {
  if (client.output.size() + sizeof header + payload.size() > kMaxOutputBytes) {
    overflowed_.push_back(id);
    return;
  }
  Header complete = header;
  complete.length = static_cast<std::uint32_t>(payload.size());
  client.output.append(reinterpret_cast<const char*>(&complete), sizeof complete);
  client.output += payload;
}

bool XenbusMux::from_daemon(std::string_view bytes) {
  from_daemon_ += bytes;
  Header header;
  std::string payload;
  bool broken = false;
  while (next_message(from_daemon_, header, payload, broken)) {
    const bool sane = header.type == XS_WATCH_EVENT ? handle_event(header, payload) : handle_reply(header, payload);
    if (!sane) return false;
  }
  return !broken;
}

bool XenbusMux::handle_reply(const Header& header, const std::string& payload) {
  const auto found = requests_.find(header.request_id);
  if (found == requests_.end()) return false;
  const Request request = std::move(found->second);
  requests_.erase(found);
  const auto client = clients_.find(request.client);
  Client* owner = client == clients_.end() ? nullptr : &client->second;
  if (request.client != kNobody) note_effect(request, owner, header.type == XS_ERROR, payload);
  if (owner == nullptr) return true;
  --owner->outstanding;
  Header restored = header;
  restored.request_id = request.client_request_id;
  queue(request.client, *owner, restored, payload);
  return true;
}

// Keeps account of what the daemon now holds for the client, or undoes it when the client is gone (`client` null).
void XenbusMux::note_effect(const Request& request, Client* client, bool failed, const std::string& payload) {
  switch (request.type) {
    case XS_WATCH:
      if (failed) return;
      if (client == nullptr) return drop_watch(request.watch);
      client->watches.insert(request.watch);
      return;
    case XS_UNWATCH:
      if (!failed && client != nullptr) client->watches.erase(request.watch);
      return;
    case XS_TRANSACTION_START: {
      std::uint32_t id = 0;
      std::from_chars(payload.data(), payload.data() + payload.size(), id);
      if (failed) return;
      if (client == nullptr) return abort_transaction(id);
      client->transactions.insert(id);
      return;
    }
    case XS_TRANSACTION_END:
      // Over whatever the answer (a conflict, a quota), unless the daemon did not understand the request.
      if (client != nullptr && !(failed && is_error(payload, "EINVAL")))
        client->transactions.erase(request.transaction_id);
      return;
    default:
      return;
  }
}

bool XenbusMux::handle_event(const Header& header, const std::string& payload) {
  const auto strings = split_strings(payload);
  if (!strings || strings->size() < 2) return false;
  const std::string& token = (*strings)[1];
  ClientId id = kNobody;
  const auto number = std::from_chars(token.data(), token.data() + token.size(), id);
  const auto separator = static_cast<std::size_t>(number.ptr - token.data());
  if (separator >= token.size() || token[separator] != kTokenSeparator) return false;
  const auto client = clients_.find(id);
  if (client == clients_.end()) return true;  // fired before its removal reached the daemon
  queue(id, client->second, header, join_strings((*strings)[0], token.substr(separator + 1)));
  return true;
}

void XenbusMux::abort_transaction(std::uint32_t transaction_id) {
  send({kNobody, 0, XS_TRANSACTION_END, transaction_id, {}}, {XS_TRANSACTION_END, 0, transaction_id, 0},
       std::string_view("F", 2));
}

void XenbusMux::drop_watch(const Watch& watch) {
  send({kNobody, 0, XS_UNWATCH, 0, watch}, {XS_UNWATCH, 0, 0, 0}, join_strings(watch.first, watch.second));
}

}  // namespace xblk::hypervisor
