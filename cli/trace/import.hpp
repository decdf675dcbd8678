// Importers, which make traces of what other programs recorded, and what they share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "sources.hpp"
#include "trace.hpp"
#include "formats.hpp"

namespace penstock::trace {

// Makes traces of what other programs recorded: the text that blkparse prints, and fio's iolog.

enum class recorder : std::uint8_t { blkparse, fio };

struct import_request {
    recorder from = recorder::blkparse;
    std::string input, out,
        file;                 // file: what the trace calls its file; of fio's log it may be empty
    std::string device;       // of blkparse: the one to take, as "8,0"; empty: the only one
    char action = 'Q';        // of blkparse
    std::uint64_t pages = 0;  // of the file; 0: as many as are touched
    std::uint32_t page_bytes = 4096;
    bool binary = false;
};

struct import_report {
    trace_header header;
    std::uint64_t lines = 0, reads = 0, writes = 0, flushes = 0;
    std::uint64_t widened = 0;  // reads and writes that did not begin and end at pages
    std::uint64_t late = 0;     // records that got the time of the one before, which was later
    std::map<std::string, std::uint64_t> skipped;  // lines that gave no record, by reason
    double seconds = 0;
};

// Reads the input twice: once to find every mistake and how large the files are, and once to write
// the trace.
status import_trace(const import_request& asked, import_report& out);

// Where importers put what they find, and what they share.

// Turns bytes into pages. First it only finds out how large the files are; then, with a writer, it
// makes records.
class import_sink {
public:
    import_sink(const import_request& asked, import_report& report, writer* to)
        : page_bytes_(asked.page_bytes), report_(report), to_(to) {}

    // What is wrong with it; empty if it was taken. The file's number is one that file() gave.
    std::string access(operation what, std::uint32_t file, std::uint64_t time_ns,
                       std::uint64_t offset, std::uint64_t bytes);
    void flush(std::uint32_t file, std::uint64_t time_ns);
    // A line without a record.
    void skip(const char* why) { ++report_.skipped[why]; }

    // A number for a file that is new.
    std::uint32_t file(const std::string& path);

    [[nodiscard]] const std::vector<file_entry>& files() const { return files_; }
    // What a write of the trace, from the buffer that holds records, went wrong by.
    status drain(std::size_t most_left);

private:
    void put(record r);

    std::uint32_t page_bytes_;
    import_report& report_;
    writer* to_;
    std::vector<file_entry> files_;  // as large as they have to be
    std::vector<record> made_;
    std::uint64_t last_ns_ = 0;
};

// One kind of input, line by line. take() gives what is wrong with the line and what was expected;
// empty if nothing is.
class importer {
public:
    virtual ~importer() = default;
    virtual std::string take(std::string_view line, import_sink& to) = 0;
    // After the last line.
    virtual std::string finish() { return {}; }
};

std::unique_ptr<importer> make_blkparse_importer(const import_request& asked);
std::unique_ptr<importer> make_fio_importer(const import_request& asked);

}  // namespace penstock::trace
