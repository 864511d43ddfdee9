// XenbusMux: many clients of one guest on the guest's one xenstore connection. Pure: bytes in, bytes out.
//
// The daemon knows one connection per domain, so what it keeps per connection must be told apart here:
//  - request ids: rewritten on the way out, restored on the way back;
//  - watch tokens: prefixed with the client's number, so two clients may watch the same path with the same token;
//  - transaction ids: a client may use only those it began;
//  - what a client leaves behind: its transactions are aborted and its watches removed when it goes.
// Everything a client sends is untrusted; everything that is queued is bounded. Errors that concern one client are
// answered to it as the daemon would (XS_ERROR and the name of an errno) or cost it its connection, nobody else's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xblk::hypervisor {

class XenbusMux {
 public:
  using ClientId = std::uint64_t;

  static constexpr std::size_t kMaxRequestsPerClient = 8;      // then its socket is read no further
  static constexpr std::size_t kMaxRequests = 1024;            // of all clients, those that have left included
  static constexpr std::size_t kMaxOutputBytes = 1024 * 1024;  // a client that reads no events is dropped at that

  ClientId add_client();
  void remove_client(ClientId id);

  // Bytes from a client. False: it broke the protocol and must be dropped.
  [[nodiscard]] bool from_client(ClientId id, std::string_view bytes);
  // Whether more bytes of this client may be taken now.
  [[nodiscard]] bool wants_input(ClientId id) const;
  // Continues with what from_client() left because of the limits; same result.
  [[nodiscard]] bool resume(ClientId id);

  // Bytes from the daemon. False: the stream makes no sense any more and the whole device is lost.
  [[nodiscard]] bool from_daemon(std::string_view bytes);

  // Queues for the caller to send on; it erases what it sent.
  std::string& to_daemon() { return to_daemon_; }
  std::string& to_client(ClientId id) { return clients_.at(id).output; }
  // Clients whose output queue overflowed since the last call.
  std::vector<ClientId> take_overflowed() { return std::exchange(overflowed_, {}); }

  [[nodiscard]] std::size_t outstanding() const { return requests_.size(); }

 private:
  struct Header {  // xsd_sockmsg
    std::uint32_t type, request_id, transaction_id, length;
  };
  using Watch = std::pair<std::string, std::string>;  // path, token on the wire
  struct Client {
    std::string input;
    std::string output;
    std::size_t outstanding = 0;
    std::set<std::uint32_t> transactions;
    std::set<Watch> watches;
  };
  struct Request {
    ClientId client;  // kNobody: sent by the mux itself, the reply is dropped
    std::uint32_t client_request_id;
    std::uint32_t type;
    std::uint32_t transaction_id;
    Watch watch;  // of XS_WATCH and XS_UNWATCH
  };
  static constexpr ClientId kNobody = 0;

  static bool next_message(std::string& stream, Header& header, std::string& payload, bool& broken);
  void handle_request(ClientId id, Client& client, const Header& header, std::string payload);
  void send_watch_request(ClientId id, Client& client, const Header& header, const std::string& payload);
  void send(Request request, Header header, std::string_view payload);
  void answer_error(ClientId id, Client& client, const Header& request, std::string_view errno_name);
  void queue(ClientId id, Client& client, const Header& header, std::string_view payload);

  [[nodiscard]] bool handle_reply(const Header& header, const std::string& payload);
  [[nodiscard]] bool handle_event(const Header& header, const std::string& payload);
  void note_effect(const Request& request, Client* client, bool failed, const std::string& payload);
  void abort_transaction(std::uint32_t transaction_id);
  void drop_watch(const Watch& watch);

  std::map<ClientId, Client> clients_;
  std::map<std::uint32_t, Request> requests_;  // by id on the wire
  std::string from_daemon_;
  std::string to_daemon_;
  std::vector<ClientId> overflowed_;
  ClientId next_client_ = 1;
  std::uint32_t next_request_ = 1;
};

}  // namespace xblk::hypervisor
