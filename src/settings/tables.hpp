// The tables of options and of statistics, in which each of them is written once.
//
// Of an option name, variable, flag, range and texts: the environment, the flags of programs,
// `penstock info`, the check of ranges, docs/guide/settings.md and the tests read them.
//
// Of a statistic name and counter: JSON, the sum over the device's counters and the tests read
// them. What each number means stands beside the member, in penstock/statistics.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "penstock/engine/layout.hpp"
#include "penstock/options.hpp"
#include "penstock/statistics.hpp"

namespace penstock::settings {

using option_member =
    std::variant<std::uint64_t options::*, std::optional<std::uint64_t> options::*,
                 std::uint32_t options::*, std::optional<std::uint32_t> options::*, int options::*,
                 bool options::*, backend options::*, io_method options::*, direct_mode options::*,
                 trust_mode options::*, std::string options::*, std::vector<std::string> options::*,
                 std::vector<int> options::*>;

enum class unit { none, bytes, ms, zero_or_one };  // the last for a bool, else on or off
enum class part { place, cache, way, waits };      // the tables of docs/guide/settings.md

struct option_names {
    const char* name;
    const char* variable;
    const char* flag;  // of every program, or empty
    settings::part part;
};

struct option_value {
    option_member member;
    settings::unit unit = unit::none;
    std::uint64_t least = 0, most = 0;  // most 0: option_entry::check knows it, if any
    bool or_zero = false;               // 0 is allowed besides
};

// For docs/guide/settings.md.
struct option_text {
    const char* of_default;  // follows the default, which is written from `options`
    const char* of_range;    // follows the range
    const char* change_when;
    const char* price;
};

struct option_entry : option_names, option_value, option_text {
    status (*check)(const options&) = nullptr;  // before the range, where its text would not do
};

std::span<const option_entry> option_entries();

// Takes a value from text; "auto" where the member is an std::optional. `label` is the variable or
// flag, for the message. -EINVAL: the text is no value. Ranges are for options::check.
status set_option(const option_entry& entry, const std::string& label, const std::string& text,
                  options& out);

// The runtime will choose, or has chosen, another value than `asked`.
bool is_automatic(const option_entry& entry, const options& asked);

// For programs: sizes in bytes; empty for a number that the runtime will choose.
std::string plain_text(const option_entry& entry, const options& of);
// For people: "64 KiB", "400 ms".
std::string shown_text(const option_entry& entry, const options& of);

// Of options::devices on a gpu. -EINVAL: a number stands there twice.
status check_distinct(const std::vector<int>& gpus);

// An address for a message: "0x7f2a40000000".
std::string shown_address(const void* memory);

// The rows of a table of docs/guide/settings.md.
std::string document_rows(part of);

struct statistic_entry {
    const char* name;
    std::uint64_t statistics::*member;
    engine::counter counter =
        engine::count_kinds;  // of the device; count_kinds: the host counts it
};

// The histograms are not among them.
std::span<const statistic_entry> statistic_entries();

// Adds up what two devices counted, the histograms too.
void add(statistics& to, const statistics& more);

}  // namespace penstock::settings
