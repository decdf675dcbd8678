// A process of its own that writes files through a runtime, for the tests that kill it and that run
// several at once.
//
//   penstock_write_process records FOLDER THREADS [unsynced]    until it is killed: records in
//       FOLDER/file and, appended, in FOLDER/log;
//       a line "THREAD FIRST LAST OFFSET ..." on standard output says which records are on storage,
//           and where in the log they begin.
//       unsynced: says so without fsync, which the test has to notice
//   penstock_write_process stripes FILE WIDTH ROLE ROLES BYTES  of every ROLES stripes of WIDTH
//       bytes, the ROLE-th; waits for a line on
//       standard input first, so that all begin together
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/penstock.hpp"
#include "penstock/write.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t record_bytes = 100;

[[noreturn]] void fail(const std::string& label, std::int64_t code) {
    std::fprintf(stderr, "penstock_write_process: %s: %s\n", label.c_str(),
                 error_text(code).c_str());
    std::_Exit(1);
}

std::int64_t good(const char* label, std::int64_t result) {
    if (result < 0) fail(label, result);
    return result;
}

std::unique_ptr<runtime> make(const std::string& root) {
    options o;
    o.where = backend::cpu;
    o.page_bytes = 4096;
    o.cache_bytes = 16 * 4096;
    o.table_bytes = 1 << 20;
    o.staging_bytes = 1 << 20;
    o.max_files = 16;
    o.writable = true;
    o.roots = {root};
    std::unique_ptr<runtime> rt;
    if (const status made = runtime::make(o, rt); !made) {
        std::fprintf(stderr, "penstock_write_process: %s\n", made.message.c_str());
        std::_Exit(1);
    }
    return rt;
}

std::string record_of(std::uint64_t thread, std::uint64_t number) {
    char text[record_bytes + 1];
    std::snprintf(text, sizeof text, "%02llu %010llu ", static_cast<unsigned long long>(thread),
                  static_cast<unsigned long long>(number));
    std::string out = text;
    while (out.size() < record_bytes - 1)
        out += static_cast<char>('a' + (out.size() + number + thread) % 26);
    return out + '\n';
}

void write_records(const runtime_ref& fs, std::uint64_t thread, std::uint64_t threads,
                   bool unsynced) {
    const int file =
        static_cast<int>(good("open", open(lane{}, fs, "file", open_read_write | open_create)));
    const int log =
        static_cast<int>(good("open", open(lane{}, fs, "log", open_write | open_create)));
    for (std::uint64_t number = 0, first = 0;; first = number) {
        std::string line = std::to_string(thread) + " " + std::to_string(first) + " ", offsets;
        for (const std::uint64_t end = number + 1 + mix64(number * threads + thread) % 30;
             number < end; ++number) {
            const std::string record = record_of(thread, number);
            good("write",
                 write(lane{}, fs, file, record.data(), record_bytes,
                       static_cast<std::int64_t>((number * threads + thread) * record_bytes)));
            offsets += " " + std::to_string(good(
                                 "append", append(lane{}, fs, log, record.data(), record_bytes)));
        }
        if (!unsynced) good("fsync", fsync(lane{}, fs, file));
        if (!unsynced) good("fsync", fsync(lane{}, fs, log));
        line += std::to_string(number - 1) + offsets + "\n";
        if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
            std::_Exit(1);  // one write(2), so one piece in the pipe
    }
}

int records(const std::string& folder, std::uint64_t threads, bool unsynced) {
    const auto rt = make(folder);
    std::vector<std::thread> team;
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] { write_records(rt->ref(), t, threads, unsynced); });
    for (std::thread& thread : team) thread.join();
    return 0;
}

int stripes(const std::string& path, std::uint64_t width, std::uint64_t role, std::uint64_t roles,
            std::uint64_t bytes) {
    const auto rt = make(path.substr(0, path.rfind('/')));
    const int fd = static_cast<int>(good("open", rt->open(path, open_read_write | open_create)));
    std::fputs("ready\n", stdout);
    std::fflush(stdout);
    if (std::fgetc(stdin) == EOF) return 1;
    constexpr std::uint64_t threads = 2;
    std::vector<std::thread> team;
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] {
            std::vector<std::uint8_t> piece;
            for (std::uint64_t number = role + t * roles, count = 0; number * width < bytes;
                 number += threads * roles, ++count) {
                const std::uint64_t begin = number * width,
                                    end = begin + width < bytes ? begin + width : bytes;
                piece.resize(end - begin);
                for (std::uint64_t i = begin; i < end; ++i)
                    piece[i - begin] = static_cast<std::uint8_t>(i * 7 + role * 31 + 1);
                good("write", write(lane{}, rt->ref(), fd, piece.data(),
                                    static_cast<std::int64_t>(piece.size()),
                                    static_cast<std::int64_t>(begin)));
                if (count % 100 == 99)
                    good("msync",
                         msync(lane{}, rt->ref(), fd, static_cast<std::int64_t>(begin), 1));
            }
        });
    for (std::thread& thread : team) thread.join();
    good("close", rt->close(fd));
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string verb = count > 1 ? words[1] : "";
    const auto number = [&](int i) { return std::strtoull(words[i], nullptr, 10); };
    if (verb == "records" && (count == 4 || (count == 5 && std::strcmp(words[4], "unsynced") == 0)))
        return records(words[2], number(3), count == 5);
    if (verb == "stripes" && count == 7)
        return stripes(words[2], number(3), number(4), number(5), number(6));
    std::fprintf(
        stderr,
        "usage: %s records FOLDER THREADS [unsynced] | stripes FILE WIDTH ROLE ROLES BYTES\n",
        words[0]);
    return 2;
}
