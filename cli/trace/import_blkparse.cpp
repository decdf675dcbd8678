// The text that blkparse prints, in the form that it has by default. A line is an event:
//
//   MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS [SECTOR + SECTORS] ...
//
// RWBS begins with F if the caches are to be flushed before; then R, W, D (discard), N (nothing) or
// Z (zones), and letters that do not matter here. After the events comes a summary for people.
// Before them, and between, may stand lines for people about files that are opened.
#include "common/message.hpp"
#include "import_sink.hpp"

namespace penstock::trace {

namespace {

constexpr std::uint64_t sector_bytes = 512;
constexpr std::size_t fraction_digits = 9;
constexpr const char* form =
    "; expected MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS ...";

bool is_device(std::string_view word) {
    const std::size_t comma = word.find(',');
    std::uint64_t number = 0;
    return comma != std::string_view::npos && number_of(word.substr(0, comma), number) &&
           number_of(word.substr(comma + 1), number);
}

bool time_of(std::string_view word, std::uint64_t& ns) {
    const std::size_t point = word.find('.');
    std::uint64_t seconds = 0, fraction = 0;
    if (point == std::string_view::npos || word.size() - point - 1 != fraction_digits) return false;
    if (!number_of(word.substr(0, point), seconds) ||
        !number_of(word.substr(point + 1), fraction) || seconds > UINT64_MAX / ns_per_second - 1)
        return false;
    ns = seconds * ns_per_second + fraction;
    return true;
}

struct event {
    std::string_view device, action, flags, rest;
    std::uint64_t time_ns = 0;
};

std::string parse(std::string_view line, event& out) {
    std::uint64_t number = 0;
    out.device = take_word(line);
    const std::string_view cpu = take_word(line), sequence = take_word(line),
                           time = take_word(line), pid = take_word(line);
    if (!number_of(cpu, number))
        return "CPU " + apps::shown(std::string(cpu)) + " is no whole number" + form;
    if (!number_of(sequence, number))
        return "SEQUENCE " + apps::shown(std::string(sequence)) + " is no whole number" + form;
    if (!time_of(time, out.time_ns)) return apps::shown(std::string(time)) + " is no time" + form;
    if (!number_of(pid, number))
        return "PID " + apps::shown(std::string(pid)) + " is no whole number" + form;
    out.action = take_word(line);
    out.flags = take_word(line);
    if (out.action.empty() || out.flags.empty())
        return "ends before ACTION and RWBS" + std::string(form);
    out.rest = line;
    return {};
}

class blkparse_importer : public importer {
public:
    explicit blkparse_importer(const import_request& asked)
        : action_(asked.action), device_(asked.device), given_(!asked.device.empty()) {}

    std::string take(std::string_view line, import_sink& to) override {
        std::string_view rest = line;
        const std::string_view word = take_word(rest);
        if (word.empty()) return to.skip("empty lines"), std::string();
        if (!summary_ && !is_device(word) && !is_for_people(word, rest))
            return apps::shown(std::string(line.substr(0, 80))) + " is no event" + form;
        if (summary_ && is_device(word))
            return "an event behind the summary; expected what blkparse printed once";
        if (!is_device(word)) return to.skip("lines for people"), std::string();
        event e;
        if (std::string wrong = parse(line, e); !wrong.empty()) return wrong;
        if (given_ && e.device != device_) return to.skip("other devices"), std::string();
        if (e.action != std::string_view(&action_, 1))
            return to.skip("other actions"), std::string();
        if (device_.empty()) device_ = e.device;
        if (e.device != device_)
            return "device " + std::string(e.device) + " beside device " + device_ +
                   "; choose one with --device";
        return take_event(e, to);
    }

private:
    // What begins the summary stands at the front of its line.
    bool is_for_people(std::string_view word, std::string_view rest) {
        if (word == "Input" && rest.starts_with(" file")) return true;
        summary_ = (word.starts_with("CPU") && rest.starts_with(" (")) ||
                   (word == "Total" && rest.starts_with(" (")) ||
                   (word == "Throughput" && rest.starts_with(" (")) ||
                   (word == "Events" && rest.starts_with(" ("));
        return summary_;
    }

    std::string take_event(event& e, import_sink& to) {
        if (to.files().empty()) to.file({});  // the importer's only one; the caller names it
        const bool flushes = e.flags[0] == 'F';
        if (flushes) e.flags.remove_prefix(1);
        const std::string_view sector = take_word(e.rest), plus = take_word(e.rest),
                               sectors = take_word(e.rest);
        if (flushes) to.flush(0, e.time_ns);
        if (plus != "+") {
            if (!flushes) to.skip("without sectors");
            return {};
        }
        const char kind = e.flags.empty()                                  ? 'N'
                          : e.flags[0] == 'Z' && e.flags.starts_with("ZA") ? 'W'
                                                                           : e.flags[0];
        if (kind == 'D' || kind == 'Z' || kind == 'N') {
            if (!flushes)
                to.skip(kind == 'D' ? "discards" : kind == 'Z' ? "zones" : "without data");
            return {};
        }
        if (kind != 'R' && kind != 'W')
            return "RWBS " + apps::shown(std::string(e.flags)) +
                   " is unknown; expected R, W, D, N or Z, after F if it flushes";
        std::uint64_t first = 0, count = 0;
        if (!number_of(sector, first) || !number_of(sectors, count))
            return apps::shown(std::string(sector) + " + " + std::string(sectors)) +
                   " are no sectors; expected SECTOR + SECTORS, as whole numbers";
        if (count == 0) return to.skip("without sectors"), std::string();
        if (first > most_file_bytes / sector_bytes || count > most_file_bytes / sector_bytes)
            return "ends behind byte 2^62; no device is so long";
        return to.access(kind == 'R' ? operation::read : operation::write, 0, e.time_ns,
                         first * sector_bytes, count * sector_bytes);
    }

    char action_;
    std::string device_;  // the one that is taken; empty: none yet
    bool given_, summary_ = false;
};

}  // namespace

std::unique_ptr<importer> make_blkparse_importer(const import_request& asked) {
    return std::make_unique<blkparse_importer>(asked);
}

}  // namespace penstock::trace
