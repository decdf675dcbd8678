// What the cases of tables share: a table over the file of the case, numbers of its rows, whether
// the rows that were delivered are right, and the file as a mapping.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "penstock/table.hpp"
#include "workload.hpp"

namespace penstock::bench {

inline table_layout rows_of_file(const context& here, std::uint64_t row_bytes) {
    table_layout layout;
    layout.row_bytes = row_bytes;
    layout.pieces.push_back({here.file().path(), 0, here.bytes() / row_bytes});
    return layout;
}

// A file that is mapped as a whole, as programs do it by hand: no access faults afterwards.
class mapped_file {
public:
    mapped_file(const std::string& path, std::uint64_t bytes) : bytes_(bytes) {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        address_ = fd < 0 ? MAP_FAILED
                          : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        const int error = errno;
        if (fd >= 0) ::close(fd);
        if (address_ == MAP_FAILED) throw failure(-error, "'" + path + "' cannot be mapped");
        ::madvise(address_, bytes, MADV_RANDOM);
    }
    ~mapped_file() { ::munmap(address_, bytes_); }
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;
    [[nodiscard]] const std::byte* get() const { return static_cast<const std::byte*>(address_); }

private:
    void* address_;
    std::uint64_t bytes_;
};

// The runtime and table of one measurement.
struct opened_table {
    opened_file file;
    std::unique_ptr<table> rows;

    // `worker_threads`: as runtime_shape has it.
    opened_table(context& here, std::uint64_t row_bytes, std::uint64_t cache_bytes,
                 std::uint64_t worker_threads = 0) {
        const table_layout layout = rows_of_file(here, row_bytes);
        options o = options_for(layout, here.own_options());
        o.cache_bytes = std::max(cache_bytes, 1024 * o.page_bytes);
        if (worker_threads != 0) o.worker_threads = static_cast<std::uint32_t>(worker_threads);
        file = here.open(here.start(o));
        require(table::make(*file.rt, layout, {}, rows));
    }
    [[nodiscard]] std::uint64_t page() const { return file.rt->settings().page_bytes; }
};

// Word w of the file is mix64(w).
struct count_wrong_rows {
    const std::uint64_t* out;
    const std::int64_t* numbers;
    std::uint64_t row_words, *wrong;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t i) const {
        std::uint64_t differ = 0;
        for (std::uint64_t w = g.rank(); w < row_words; w += g.size())
            differ += out[i * row_words + w] !=
                              mix64(static_cast<std::uint64_t>(numbers[i]) * row_words + w)
                          ? 1
                          : 0;
        if (differ != 0) atomic_add_relaxed(wrong, differ);
    }
};

struct choose_uniform {
    std::int64_t* numbers;
    std::uint64_t rows, seed;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        numbers[i] = static_cast<std::int64_t>(mix64(i + seed * 0x9e3779b97f4a7c15ull) % rows);
    }
};

inline void expect_right_rows(const opened_table& of, const memory& numbers, const memory& out,
                              std::uint64_t count, const memory& wrong) {
    run_kernel<width::warp>(*of.file.rt, count,
                            count_wrong_rows{out.as<std::uint64_t>(), numbers.as<std::int64_t>(),
                                             of.rows->row_bytes() / 8, wrong.as()});
    require(of.rows->check());
    require_none(wrong, "words of rows are wrong or were not delivered");
}

}  // namespace penstock::bench
