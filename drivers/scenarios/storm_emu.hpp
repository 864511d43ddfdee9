// Reconnect storms across processes: 64 guests, a device of up to 4 queues each, under light verified load, told to
// reconnect with other policies at any moment, also in the middle of a reconnect.
#pragma once

#include <cstdint>

namespace xblk::scenarios {

// Each burst: 64 reconnects of guests drawn at random, none of them waited for; then all must come back with what they
// were told last in force. At the end the data is verified, and neither end, host nor key store may hold anything more.
void storm_over_processes(std::uint64_t seed, int bursts);

}  // namespace xblk::scenarios
