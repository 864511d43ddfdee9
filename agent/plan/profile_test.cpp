#include "agent/plan/profile.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/plan/points.hpp"
#include "agent/plan/schema.hpp"

namespace xblk::plan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kHead = "name: t\nstore: null:1GiB\n";  // two lines

std::string error_of(const std::string& text) {
  const auto profile = parse_profile(text, "p.yaml");
  return profile ? "no error" : profile.error().message;
}

TEST(Profile, ReadsEveryField) {
  const auto profile = parse_profile(R"(
name: all
description: every field
platform: model
store: ram:64MiB
fixed: {guests: 2, front.pools: per_queue}
matrix:
  queues: [1, 2]
  persistent: [on, off]
include: [{queues: 4, fio.rwmixread: 70}]
exclude: [{queues: 2, persistent: off}]
fio: {runtime: 3s, ramp_time: 500ms, time_based: true, verify: "on"}
repeats: 7
order: sequential
seed: 42
)",
                                     "all.yaml");
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  EXPECT_EQ(profile->name, "all");
  EXPECT_EQ(profile->platform, "model");
  EXPECT_EQ(to_string(profile->store), "ram:64m");
  EXPECT_EQ(profile->fixed[1].parameter.name, "front.pools");
  EXPECT_EQ(profile->fixed[1].values, std::vector<std::string>{"per-queue"});
  EXPECT_EQ(profile->matrix[1].values, (std::vector<std::string>{"on", "off"}));
  EXPECT_EQ(profile->repeats, 7u);
  EXPECT_EQ(profile->order, Order::sequential);
  EXPECT_EQ(profile->seed, 42u);
  EXPECT_EQ(*find_setting(profile->fio, "time_based"), "1") << "a YAML boolean is fio's 1";
  EXPECT_EQ(*find_setting(profile->fio, "verify"), "on") << "a quoted word stays as it is";
}

struct BadProfile {
  const char* name;
  std::string text;
  std::string message;  // the beginning of it
};

void PrintTo(const BadProfile& bad, std::ostream* out) {
  *out << bad.text;
}

class BadProfiles : public testing::TestWithParam<BadProfile> {};

TEST_P(BadProfiles, SayWhatAndWhere) {
  EXPECT_THAT(error_of(GetParam().text), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Errors, BadProfiles,
    testing::Values(
        BadProfile{"UnknownKey", kHead + "matrx: {}\n", "p.yaml:3:1: unknown key 'matrx' (did you mean 'matrix'?)"},
        BadProfile{"ParameterAtTop", kHead + "queues: 2\n",
                   "p.yaml:3:1: unknown key 'queues'; parameters stand under 'fixed' or 'matrix'"},
        BadProfile{"UnknownParameter", kHead + "matrix:\n  quues: [1]\n",
                   "p.yaml:4:3: unknown key 'quues' (did you mean 'queues'?)"},
        BadProfile{"NoName", "store: null:1m\n", "p.yaml:1:1: 'name' is missing"},
        BadProfile{"NoStore", "name: t\n", "p.yaml:1:1: 'store' is missing"},
        BadProfile{"BadName", "name: ../x\nstore: null:1m\n", "p.yaml:1:7: a name is"},
        BadProfile{"BadPlatform", kHead + "platform: kvm\n", "p.yaml:3:11: platform is emu, xen or model, not 'kvm'"},
        BadProfile{"BadStore", "name: t\nstore: disk:1g\n", "p.yaml:2:8: store 'disk:1g': 'disk:1g' is not a store"},
        BadProfile{"StoreWithoutSize", "name: t\nstore: ram\n", "p.yaml:2:8: store 'ram'"},
        BadProfile{"StoreOverflow", "name: t\nstore: ram:99999999999999999999g\n", "p.yaml:2:8: store 'ram:9999"},
        BadProfile{"StoreOfHalfAPage", "name: t\nstore: ram:512\n", "p.yaml:2:8: store 'ram:512': the size is not"},
        BadProfile{"RelativePath", "name: t\nstore: file:1g:disk\n", "p.yaml:2:8: store 'file:1g:disk'"},
        BadProfile{"BadLink", "name: t\nstore: throttled:fast:1ms:ram:1g\n", "p.yaml:2:8: store 'throttled:fast:"},
        BadProfile{"SharedFile", "name: t\nstore: file:1g:/d\nfixed: {guests: 2}\n",
                   "p.yaml:2:8: 2 guests would share /d: write {guest} in the path"},
        BadProfile{"ZeroQueues", kHead + "fixed:\n  queues: 0\n",
                   "p.yaml:4:11: 'queues' cannot be '0'; it takes a whole number from 1 to "},
        BadProfile{"ZeroJobs", kHead + "matrix: {numjobs: [1, 0]}\n",
                   "p.yaml:3:23: 'numjobs' cannot be '0'; it takes a whole number from 1 to 64"},
        BadProfile{"NotBoolean", kHead + "fixed: {persistent: maybe}\n",
                   "p.yaml:3:21: 'persistent' cannot be 'maybe'; it takes on or off"},
        BadProfile{"QuotedBoolean", kHead + "fixed: {persistent: \"on\"}\n",
                   "p.yaml:3:21: 'persistent' cannot be 'on'; it takes on or off"},
        BadProfile{"BadWord", kHead + "fixed: {data-path: mapp}\n",
                   "p.yaml:3:20: 'data-path' cannot be 'mapp'; it takes one of map|copy|hybrid (did you mean 'map'?)"},
        BadProfile{"OddBlock", kHead + "fixed: {bs: 1000}\n", "p.yaml:3:13: 'bs' cannot be '1000'; it takes a size"},
        BadProfile{"TwiceInYaml", kHead + "repeats: 3\nrepeats: 4\n",
                   "p.yaml:4:1: key 'repeats' is given twice; the first is on line 3"},
        BadProfile{"TwiceInList", kHead + "matrix: {queues: [1, 1]}\n",
                   "p.yaml:3:22: 'queues' has the value '1' twice"},
        BadProfile{"FixedAndMatrix", kHead + "fixed: {queues: 1}\nmatrix: {queues: [1, 2]}\n",
                   "p.yaml:4:10: 'queues' is also fixed, on line 3"},
        BadProfile{"BothEndsAndOne", kHead + "fixed: {pools: per-queue, front.pools: per-device}\n",
                   "p.yaml:3:27: 'front.pools' contradicts 'pools' on line 3"},
        BadProfile{"OneEndOfHostPolicy", kHead + "fixed: {back.grant-locks: split}\n",
                   "p.yaml:3:9: 'grant-locks' is not a policy of both ends"},
        BadProfile{"ListInFixed", kHead + "fixed: {queues: [1, 2]}\n", "p.yaml:3:17: 'queues' is fixed"},
        BadProfile{"EmptyList", kHead + "matrix: {queues: []}\n", "p.yaml:3:18: 'queues' has no value"},
        BadProfile{"NestedList", kHead + "matrix: {queues: [[1]]}\n",
                   "p.yaml:3:19: expected a single value, found a list"},
        BadProfile{"ReservedFioOption", kHead + "fio: {ioengine: libaio}\n",
                   "p.yaml:3:7: fio option 'ioengine' is set by xblk itself"},
        BadProfile{"ReservedWithHyphen", kHead + "fixed: {fio.output-format: json}\n",
                   "p.yaml:3:9: 'output-format' is not the name of a fio job option"},
        BadProfile{"CommandInFioOption", kHead + "fio: {exec_prerun: reboot}\n",
                   "p.yaml:3:7: fio option 'exec_prerun' is not for profiles"},
        BadProfile{"OwnParameterUnderFio", kHead + "fio: {blocksize: 4k}\n",
                   "p.yaml:3:7: 'blocksize' is a parameter of its own; write 'bs' under 'fixed'"},
        BadProfile{"LineBreakInFioValue", kHead + "fio: {verify: \"crc32c\\nexec_prerun=reboot\"}\n",
                   "p.yaml:3:15: fio option 'verify' has a control character"},
        BadProfile{"FioOptionTwice", kHead + "fio: {rwmixread: 70}\nmatrix: {fio.rwmixread: [50]}\n",
                   "p.yaml:4:10: 'rwmixread' is also set under 'fio', on line 3"},
        BadProfile{"RuntimeAlone", kHead + "fio: {runtime: 3s}\n",
                   "p.yaml:3:16: fio ends a job at the end of the disk"},
        BadProfile{"TimeBasedAlone", kHead + "fio: {time_based: on}\n", "p.yaml:3:19: 'time_based' needs a 'runtime'"},
        BadProfile{"RampLonger", kHead + "fio: {runtime: 3s, time_based: on, ramp_time: 5s}\n",
                   "p.yaml:3:47: 'ramp_time' is longer than 'runtime'"},
        BadProfile{"BadDuration", kHead + "fio: {runtime: soon, time_based: on}\n",
                   "p.yaml:3:16: 'runtime' is not a duration"},
        BadProfile{"IncludeAddsNothing", kHead + "matrix: {queues: [1, 2]}\ninclude:\n  - queues: 2\n",
                   "p.yaml:5:5: this entry adds nothing"},
        BadProfile{"ExcludeRemovesNothing", kHead + "matrix: {queues: [1, 2]}\nexclude:\n  - queues: 3\n",
                   "p.yaml:5:5: this entry excludes nothing"},
        BadProfile{"ExcludeOutsideMatrix", kHead + "matrix: {queues: [1, 2]}\nexclude: [{bs: 4k}]\n",
                   "p.yaml:4:12: 'bs' is not in the matrix"},
        BadProfile{"AllExcluded", kHead + "matrix: {queues: [1]}\nexclude: [{queues: 1}]\n",
                   "p.yaml:1:1: every point is excluded"},
        BadProfile{"TooMuchInFlight", kHead + "matrix: {iodepth: [4096], bs: [1m], numjobs: [64]}\n",
                   "p.yaml:3:10: point g1-q1-persistent-randread-bs1m-qd4096-j64 keeps 256g in flight"},
        BadProfile{"BlockLargerThanStore", "name: t\nstore: ram:4k\nfixed: {bs: 8k}\n",
                   "p.yaml:1:1: point g1-q1-persistent-randread-bs8k-qd1 has blocks larger than the store (ram:4k)"},
        BadProfile{"TooManyRepeats", kHead + "repeats: 1001\n", "p.yaml:3:10: expected a whole number from 1 to 1000"},
        BadProfile{"NegativeSeed", kHead + "seed: -1\n", "p.yaml:3:7: expected a whole number from 0"},
        BadProfile{"BadOrder", kHead + "order: random\n", "p.yaml:3:8: order is interleaved or sequential"},
        BadProfile{"Alias", "name: &a t\nstore: *a\n", "p.yaml:1:7: anchors are not supported"},
        BadProfile{"Tag", "name: !!str t\nstore: null:1m\n", "p.yaml:1:7: tags are not supported"},
        BadProfile{"TwoDocuments", kHead + "---\nname: u\n", "p.yaml:3:1: a profile is one document"},
        BadProfile{"Deep", "name: [[[[[[[[[[1]]]]]]]]]]\n", "p.yaml:1:14: nested too deeply"},
        BadProfile{"BrokenYaml", "name: [t\nstore", "p.yaml:"},
        BadProfile{"Empty", "", "p.yaml:1:1: expected a mapping, found nothing"},
        BadProfile{"Large", "name: " + std::string(70'000, 'x'), "p.yaml: larger than 64 KiB"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Profile, StoresHaveOneCanonicalText) {
  const auto text_of = [](const std::string& text) { return to_string(parse_store(text).value()); };
  EXPECT_EQ(text_of("null:1GiB"), "null:1g");
  EXPECT_EQ(text_of("ram:1536KiB"), "ram:1536k");
  EXPECT_EQ(text_of("ram:2048GiB"), "ram:2048g");
  EXPECT_EQ(text_of("throttled:70MB/s:500000ns:ram:64MiB"), "throttled:70MB/s:500us:ram:64m");
  EXPECT_EQ(text_of("throttled:3MiB/s:0ns:throttled:64MiB/s:1ms:null:1g"),
            "throttled:3MiB/s:0ns:throttled:64MiB/s:1ms:null:1g");
  EXPECT_EQ(text_of("file:1024MiB:/a:b"), "file:1g:/a:b");
  EXPECT_EQ(text_of("file:/d/{guest}"), "file:/d/{guest}");
  const auto store = parse_store("throttled:1MB/s:1us:file:1g:/d{guest}/{guest}.img").value();
  EXPECT_EQ(store_of_guest(store, 12), "throttled:1MB/s:1us:file:1g:/d12/12.img");
  EXPECT_TRUE(answers_late(store));
  EXPECT_FALSE(answers_late(parse_store("null:1g").value()));
}

TEST(Profile, RefusesAMatrixThatIsTooLarge) {
  std::string text = kHead + "matrix:\n";
  for (const char* axis : {"guests", "queues", "iodepth", "numjobs"}) {
    text += std::string("  ") + axis + ": [1";
    for (int value = 2; value <= 16; ++value) text += ", " + std::to_string(value);
    text += "]\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("the matrix has more than 10000 points"));
}

TEST(Profile, MissingFileIsOneLine) {
  const auto profile = load_profile("/nonexistent/profile.yaml");
  ASSERT_FALSE(profile.has_value());
  EXPECT_EQ(profile.error().message, "cannot read profile /nonexistent/profile.yaml: No such file or directory");
}

// The profiles that are installed must load, and must fit the machine they are made for.
TEST(Profile, EveryShippedProfileLoads) {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(XBLK_SOURCE_DIR "/profiles")) {
    if (entry.path().extension() != ".yaml") continue;
    const auto profile = load_profile(entry.path());
    ASSERT_TRUE(profile.has_value()) << profile.error().message;
    EXPECT_EQ(profile->name, entry.path().stem()) << "a profile is named like its file";
    EXPECT_FALSE(profile->description.empty());
    ++loaded;
  }
  EXPECT_GE(loaded, 3);
}

// A policy that a driver learns must be shown there, or the profile no longer answers for all of them.
TEST(Profile, PoliciesProfileTriesEveryPolicy) {
  const auto profile = load_profile(XBLK_SOURCE_DIR "/profiles/policies.yaml");
  ASSERT_TRUE(profile) << profile.error().message;
  std::map<std::string, std::set<std::string>> seen;
  for (const Point& point : expand(*profile)) {
    for (const auto& [name, value] : point.params) seen[name].insert(value);
  }
  for (const Parameter& parameter : parameters()) {
    const bool policy = parameter.target != ParameterTarget::fio && parameter.target != ParameterTarget::guests;
    if (!policy || parameter.name == kPresetParameter) continue;
    EXPECT_GE(seen[parameter.name].size(), 2u) << parameter.name << " is never changed";
  }
}

// Editors must know exactly what the program knows.
TEST(Profile, SchemaIsTheOneThatTheProgramMakes) {
  std::ifstream file(XBLK_SOURCE_DIR "/profiles/schema/profile.schema.json");
  const std::string kept{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(kept, profile_schema().dump(2) + "\n") << "xblk plan --schema > profiles/schema/profile.schema.json";
}

}  // namespace
}  // namespace xblk::plan
