#include "table/row_batches.hpp"

#include <algorithm>

#include "penstock/engine/counters.hpp"

namespace penstock::host {

namespace {

constexpr std::uint32_t most_pages = engine::most_through_pages;

// Of each row so much is asked for ahead; the processor finds the rest of a long one itself.
constexpr std::uint64_t ahead_bytes = 128, line_bytes = 64;

// A row, from when it is found to the second look.
struct row_look {
    const engine::file_handle* file;  // null: it lies in none
    std::uint64_t at;
    const std::byte* from;  // null: not from here
    engine::window_word window;
    std::uint32_t pages;  // whose words were seen
    bool is_hit;
};

class batch {
public:
    batch(const engine::cache_view& c, const table_job& job) : c_(c), job_(job) {}

    void begin(std::uint64_t first, std::uint64_t end) {
        first_ = first;
        count_ = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(end - first, row_batches::batch_rows));
        file_ = nullptr;
    }
    [[nodiscard]] std::uint32_t count() const { return count_; }

    // Where row k lies; its memory is asked for.
    void find(std::uint32_t k) {
        row_look& row = rows_[k];
        const engine::row_source source = engine::source_of(job_.table, job_.list, first_ + k);
        row.from = nullptr;
        row.file = source.is == engine::row_source::in_file ? source.file : nullptr;
        if (row.file == nullptr) return;
        row.at = source.at;
        row.window = window_of(*row.file);
        if (row.window == 0) return;
        const std::uint64_t bytes = job_.table.row_bytes, last = row.at + bytes - 1;
        const std::byte* const from = engine::address_in_window(c_, row.window, row.at);
        if (from == nullptr) return;
        // Chunks that are neighbours in one mapping are one piece.
        if (row.at >> engine::window_chunk_shift != last >> engine::window_chunk_shift &&
            engine::address_in_window(c_, row.window, last) != from + bytes - 1)
            return;
        row.from = from;
        for (std::uint64_t ahead = 0; ahead < bytes && ahead < ahead_bytes; ahead += line_bytes)
            __builtin_prefetch(from + ahead);
    }

    // The first looks at page words. A row whose page is in the cache comes from there.
    void look() {
        const bool stop = engine::stop_code(c_) != 0;
        for (std::uint32_t k = 0; k < count_; ++k) {
            if (stop) rows_[k].from = nullptr;
            else if (rows_[k].file != nullptr) look(rows_[k], seen_[k]);
        }
        engine::end_load_for_read();  // the words were absent or valid before a byte is read
    }

    void copy(std::uint32_t k) const {
        if (rows_[k].from != nullptr)
            lane{}.copy_through(job_.memory + (first_ + k) * job_.stride_bytes, rows_[k].from,
                                job_.table.row_bytes);
    }

    // A bit for each row that was not delivered.
    [[nodiscard]] std::uint32_t look_again() {
        engine::begin_recheck();  // the bytes were read before the words are looked at again
        std::uint64_t through_pages = 0, hits = 0;
        std::uint32_t left = 0;
        const engine::file_handle* file = nullptr;
        engine::window_word window = 0;
        for (std::uint32_t k = 0; k < count_; ++k) {
            const row_look& row = rows_[k];
            if (row.from != nullptr && !row.is_hit && row.file != file) {
                file = row.file;
                window = engine::load_relaxed(&c_.windows[file->slot]);
            }
            const bool good = row.from != nullptr && (row.is_hit || window == row.window) &&
                              are_pages_as_seen(row, seen_[k]);
            if (!good) left |= std::uint32_t{1} << k;
            else if (!row.is_hit) through_pages += row.pages;
            else touch(row, seen_[k][0]), ++hits;
        }
        if (hits != 0) engine::count(lane{}, c_, engine::count_hits, hits);
        if (through_pages != 0)
            engine::count(lane{}, c_, engine::count_through_reads, through_pages);
        return left;
    }

private:
    // The same for all rows of the batch that follow each other in one file.
    engine::window_word window_of(const engine::file_handle& file) {
        if (&file != file_) {
            file_ = &file;
            window_ = engine::window_of(c_, file);
        }
        return window_;
    }

    void look(row_look& row, engine::page_word* seen) const {
        const std::uint64_t first = row.at >> c_.page_shift,
                            last = (row.at + job_.table.row_bytes - 1) >> c_.page_shift;
        row.is_hit = false;
        row.pages = 0;
        bool may_read_past = row.from != nullptr && last - first < most_pages;
        for (std::uint64_t page = first; may_read_past && page <= last; ++page) {
            seen[row.pages] = engine::absence_of(c_, *row.file, page);
            may_read_past = engine::may_read_past(seen[row.pages++]);
        }
        if (may_read_past) return;
        row.from = nullptr;
        if (first != last || !lane::copies_race()) return;  // such a hit pins (engine/read.hpp)
        seen[0] = engine::absence_of(c_, *row.file, first);
        if (!engine::is_valid(seen[0])) return;
        row.is_hit = true;
        row.pages = 1;
        row.from = c_.frame_address(engine::frame_of(seen[0])) + (row.at & (c_.page_bytes() - 1));
    }

    [[nodiscard]] bool are_pages_as_seen(const row_look& row, const engine::page_word* seen) const {
        const std::uint64_t first = row.at >> c_.page_shift;
        for (std::uint32_t i = 0; i < row.pages; ++i)
            if (!engine::same_frame(engine::absence_of(c_, *row.file, first + i), seen[i]))
                return false;
        return true;
    }

    void touch(const row_look& row, engine::page_word seen) const {
        engine::touch(&c_.words[engine::find_word(c_, *row.file, row.at >> c_.page_shift)], seen);
    }

    const engine::cache_view& c_;
    const table_job& job_;
    std::uint64_t first_ = 0;
    std::uint32_t count_ = 0;
    const engine::file_handle* file_ = nullptr;  // of the row before, with its window
    engine::window_word window_ = 0;
    row_look rows_[row_batches::batch_rows];
    engine::page_word seen_[row_batches::batch_rows][most_pages];
};

}  // namespace

void row_batches::copy(const engine::cache_view& c, const table_job& job, std::uint64_t begin,
                       std::uint64_t end, std::uint32_t* left) {
    batch first(c, job), second(c, job);
    batch *now = &first, *next = &second;
    now->begin(begin, end);
    for (std::uint32_t k = 0; k < now->count(); ++k) now->find(k);
    while (begin < end) {
        begin += now->count();
        next->begin(begin, end);
        now->look();
        for (std::uint32_t k = 0; k < now->count(); ++k) {
            if (k < next->count()) next->find(k);  // it has no more rows than this one
            now->copy(k);
        }
        *left++ = now->look_again();
        std::swap(now, next);
    }
}

}  // namespace penstock::host
