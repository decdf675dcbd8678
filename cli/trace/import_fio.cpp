// fio's iolog of version 2 and 3. A line names the file, what is done, and for reads and writes
// where:
//
//   [TIME_US] PATH add|open|close
//   [TIME_US] PATH read|write|sync|datasync|sync_file_range|trim|wait OFFSET BYTES
//
// Version 3 has the time; in version 2, where it comes from `wait`, OFFSET are the microseconds
// after the last wait.
#include <array>
#include <unordered_map>

#include "common/message.hpp"
#include "header_text.hpp"
#include "import_sink.hpp"

namespace penstock::trace {

namespace {

constexpr std::uint64_t ns_per_us = 1000, most_us = UINT64_MAX / ns_per_us;

// Takes the last word from the end of a line.
std::string_view take_last_word(std::string_view& line) {
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!line.empty() && blank(line.back())) line.remove_suffix(1);
    std::size_t from = line.size();
    while (from > 0 && !blank(line[from - 1])) --from;
    const std::string_view word = line.substr(from);
    line.remove_suffix(word.size());
    while (!line.empty() && blank(line.back())) line.remove_suffix(1);
    return word;
}

class fio_importer : public importer {
public:
    std::string take(std::string_view line, import_sink& to) override {
        if (version_ == 0) return take_version(line);
        std::uint64_t time_us = now_us_;
        if (version_ == 3) {
            const std::string_view word = take_word(line);
            if (word.empty()) return to.skip("empty lines"), std::string();
            if (!number_of(word, time_us) || time_us > most_us)
                return apps::shown(std::string(word)) +
                       " is no time in microseconds; expected TIME PATH ACTION";
        }
        while (!line.empty() && (line[0] == ' ' || line[0] == '\t')) line.remove_prefix(1);
        std::string_view rest = line;
        const std::string_view last = take_last_word(rest);
        if (last.empty()) return to.skip("empty lines"), std::string();
        if (last == "add" || last == "open" || last == "close")
            return take_file(std::string(rest), last, to);
        return take_access(line, time_us, to);
    }

    std::string finish() override {
        return version_ == 0 ? "is empty; expected a log of fio" : std::string();
    }

private:
    std::string take_version(std::string_view line) {
        version_ = line == "fio version 2 iolog" ? 2 : line == "fio version 3 iolog" ? 3 : 0;
        return version_ != 0 ? std::string()
                             : apps::shown(std::string(line.substr(0, 80))) +
                                   " is not how a log of fio begins; expected 'fio version 2 "
                                   "iolog' or 'fio version 3 iolog'";
    }

    std::string take_file(std::string path, std::string_view what, import_sink& to) {
        if (path.empty())
            return "no file before " + apps::shown(std::string(what)) + "; expected PATH " +
                   std::string(what);
        if (what == "add") added_.try_emplace(std::move(path), none);
        else if (!added_.contains(path))
            return apps::shown(path) + " was not added before; expected a line PATH add";
        to.skip("add, open and close");
        return {};
    }

    std::string take_access(std::string_view line, std::uint64_t time_us, import_sink& to) {
        constexpr const char* form = "; expected PATH ACTION, or PATH ACTION OFFSET LENGTH";
        std::uint64_t offset = 0, bytes = 0;
        const std::string_view length = take_last_word(line), place = take_last_word(line),
                               what = take_last_word(line);
        if (!number_of(length, bytes))
            return apps::shown(std::string(length)) + " is no action, and no length" + form;
        if (!number_of(place, offset))
            return apps::shown(std::string(place)) + " is no offset" + form;
        if (line.empty()) return "no file and action before the numbers" + std::string(form);
        if (what == "wait") return take_wait(offset, to);
        const auto known = added_.find(std::string(line));
        if (known == added_.end())
            return apps::shown(std::string(line)) +
                   " was not added before; expected a line PATH add";
        if (what == "trim") return to.skip("trims"), std::string();
        const bool reads = what == "read", writes = what == "write";
        if (!reads && !writes && what != "sync" && what != "datasync" && what != "sync_file_range")
            return apps::shown(std::string(what)) +
                   " is no action; expected read, write, sync, datasync, sync_file_range, trim or "
                   "wait";
        if ((reads || writes) && bytes == 0)
            return to.skip("reads and writes of nothing"), std::string();
        if (known->second == none) {
            if (to.files().size() == most_files)
                return "more than " + apps::with_commas(most_files) + " files";
            known->second = to.file(known->first);
        }
        if (reads || writes)
            return to.access(reads ? operation::read : operation::write, known->second,
                             time_us * ns_per_us, offset, bytes);
        to.flush(known->second, time_us * ns_per_us);
        return {};
    }

    std::string take_wait(std::uint64_t us, import_sink& to) {
        if (version_ != 2) return "a wait in version 3, whose lines have times; expected none";
        if (us > most_us - now_us_)
            return "a wait of " + std::to_string(us) + " microseconds; expected less";
        now_us_ += us;
        to.skip("waits");
        return {};
    }

    static constexpr std::uint32_t none = UINT32_MAX;
    int version_ = 0;
    std::uint64_t now_us_ = 0;  // of version 2
    std::unordered_map<std::string, std::uint32_t>
        added_;  // by path: its number, once it was accessed
};

}  // namespace

std::unique_ptr<importer> make_fio_importer(const import_request&) {
    return std::make_unique<fio_importer>();
}

}  // namespace penstock::trace
