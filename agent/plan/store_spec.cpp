#include "agent/plan/store_spec.hpp"

namespace xblk::plan {
namespace {

struct Suffix {
  const char* name;
  std::uint64_t scale;
};

// In the largest unit that is exact; `units` ends with the smallest.
template <std::size_t N>
std::string in_units(std::uint64_t value, const Suffix (&units)[N]) {
  for (const Suffix& unit : units) {
    if (value % unit.scale == 0 && (value != 0 || unit.scale == units[N - 1].scale)) {
      return std::to_string(value / unit.scale) + unit.name;
    }
  }
  return std::to_string(value) + units[N - 1].name;
}

std::string size_text(Sectors size) {
  constexpr Suffix kUnits[] = {{"g", 1U << 30}, {"m", 1U << 20}, {"k", 1U << 10}, {"", 1}};
  return in_units(to_bytes(size).value(), kUnits);
}

std::string link_text(const store::Link& link) {
  constexpr Suffix kRates[] = {{"MB/s", 1'000'000}, {"MiB/s", 1U << 20}};
  constexpr Suffix kTimes[] = {{"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};
  return "throttled:" + in_units(link.bytes_per_second, kRates) + ":" +
         in_units(static_cast<std::uint64_t>(link.round_trip.value()), kTimes) + ":";
}

}  // namespace

Result<StoreSpec> parse_store(const std::string& text) {
  auto parsed = store::parse_specification(text);
  if (parsed && to_bytes(parsed->size).value() % kPageSize != 0) {
    return fail(EINVAL, "store '" + text + "': the size is not a multiple of 4 KiB");
  }
  return parsed;
}

std::string to_string(const StoreSpec& store) {
  std::string out;
  for (const store::Link& link : store.links) out += link_text(link);
  switch (store.kind) {
    case StoreSpec::Kind::null:
      return out + "null:" + size_text(store.size);
    case StoreSpec::Kind::ram:
      return out + "ram:" + size_text(store.size);
    case StoreSpec::Kind::file:
      return out + "file:" + (store.size == Sectors(0) ? "" : size_text(store.size) + ":") + store.path;
  }
  return out;
}

std::string path_of_guest(const StoreSpec& store, unsigned guest) {
  std::string path = store.path;
  const std::string number = std::to_string(guest);
  for (auto at = path.find(kGuestInPath); at != std::string::npos; at = path.find(kGuestInPath, at + number.size())) {
    path.replace(at, kGuestInPath.size(), number);
  }
  return path;
}

std::string store_of_guest(const StoreSpec& store, unsigned guest) {
  StoreSpec own = store;
  own.path = path_of_guest(store, guest);
  return to_string(own);
}

std::string refusal_for_guests(const StoreSpec& store, unsigned guests) {
  const bool shared = store.kind == StoreSpec::Kind::file && guests > 1;
  if (!shared || store.path.find(kGuestInPath) != std::string::npos) return "";
  return std::to_string(guests) + " guests would share " + store.path + ": write {guest} in the path for the number";
}

bool answers_late(const StoreSpec& store) {
  return store.kind == StoreSpec::Kind::file || !store.links.empty();
}

}  // namespace xblk::plan
