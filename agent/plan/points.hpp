// From a profile to the points of its matrix, and to the order in which they are visited.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/plan/profile.hpp"

namespace xblk::plan {

using Policy = std::map<std::string, std::string>;  // name in drivers/blkif/policy.hpp -> value as the key wants it

struct Point {
  std::string id;  // stable, readable: "g2-q1-persistent-randread-bs4k-qd32"
  // Identity of the point: what comparisons match on. Complete, defaults too; but a preset stands for the policies that
  // the profile does not name, so that points of different presets differ in `preset` alone.
  Settings params;
  unsigned guests = 1;
  Policy front;  // complete: each key has a value, so that no point inherits the one before
  Policy back;
  Policy host;
  Settings fio;  // options of the job, without those that xblk sets itself
};

// In the order of the matrix, last axis fastest, then the additions of `include`.
std::vector<Point> expand(const Profile& profile);

// The same, with what each entry of include and exclude achieved: an entry without effect is a mistake.
struct Expansion {
  std::vector<Point> points;
  std::vector<std::size_t> removed_by_exclude;
  std::vector<std::size_t> added_by_include;
};
Expansion expand_and_count(const Profile& profile);

struct Visit {
  std::size_t point_index = 0;
  std::size_t repeat = 0;
  friend bool operator==(const Visit&, const Visit&) = default;
};

// interleaved: blocks, each of which visits every point once in a shuffled order, so that a drift of the machine meets
// all points alike (randomised complete blocks). sequential: all repeats of a point together.
std::vector<Visit> schedule(std::size_t points, std::size_t repeats, Order order, std::uint64_t seed);

// Time in which fio measures and ramps up; connecting adds to it. Zero for a point without a runtime.
Nanos load_time(const Point& point);

// Bytes that one guest's jobs keep in flight: iodepth x bs x numjobs.
Bytes bytes_in_flight(const Point& point);

}  // namespace xblk::plan
