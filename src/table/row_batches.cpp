#include "table/row_batches.hpp"

#include <algorithm>

#include "penstock/engine/counters.hpp"
#include "penstock/engine/row_parts.hpp"

namespace penstock::host {

namespace {

constexpr std::uint32_t most_pages = engine::most_through_pages;

// Of each row so much is asked for ahead; the processor finds the rest of a long one itself.
constexpr std::uint64_t ahead_bytes = 128, line_bytes = 64;

// Where the state of a page is seen: its page word, or while it has none the entry of the
// directory, which is 0 then. An entry changes once, so as long as the word is as it was, the page
// is too.
struct page_look {
    engine::page_word* word;         // null: of a page by which the file has grown
    engine::page_word seen, counts;  // of the word, those bits that say where the page is

    PENSTOCK_INLINE void take(const engine::cache_view& c, const engine::file_handle& f,
                              std::uint64_t page) {
        word = nullptr;
        seen = 0;
        if (c.writes != nullptr && page >= c.file_records[f.slot].page_count) return;
        word = &c.words[f.table + (f.two_level ? page >> c.leaf_shift : page)];
        counts = engine::state_mask | engine::generation_mask | engine::frame_mask;
        if (f.two_level) {
            const std::uint64_t index = engine::find_in_leaf(c, f.table, page);
            if (index == engine::no_word) {
                counts = ~engine::page_word{0};
                return;
            }
            word = &c.words[index];
        }
        seen = engine::load_relaxed(word);
    }
    [[nodiscard]] PENSTOCK_INLINE bool may_read_past() const {
        return word != nullptr && engine::may_read_past(seen);
    }
    [[nodiscard]] PENSTOCK_INLINE bool is_as_seen() const {
        return ((engine::load_relaxed(word) ^ seen) & counts) == 0;
    }
};

// A row, from when it is found to the second look.
struct row_look {
    const engine::file_handle* file;  // null: it lies in none
    std::uint64_t at;
    const std::byte* from;  // null: not from here
    engine::window_word window;
    page_look page;       // the first
    std::uint32_t pages;  // that were looked at
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
        // Chunks that are neighbours in one mapping are one piece. Each is asked: between two of
        // the file's own the mapping of another file may lie.
        for (std::uint64_t next = (row.at | (engine::window_chunk_bytes - 1)) + 1; next <= last;
             next += engine::window_chunk_bytes)
            if (engine::address_in_window(c_, row.window, next) != from + (next - row.at)) return;
        row.from = from;
        for (std::uint64_t ahead = 0; ahead < bytes && ahead < ahead_bytes; ahead += line_bytes)
            __builtin_prefetch(from + ahead);
    }

    // The first looks at page words. A row whose page is in the cache comes from there.
    void look() {
        const bool stop = engine::stop_code(c_) != 0;
        for (std::uint32_t k = 0; k < count_; ++k) {
            if (stop) rows_[k].from = nullptr;
            else if (rows_[k].file != nullptr) look(rows_[k], later_[k]);
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
                              are_pages_as_seen(row, later_[k]) &&
                              !engine::is_cut_off(c_, row.file->slot, row.at, job_.table.row_bytes);
            if (!good) left |= std::uint32_t{1} << k;
            else if (!row.is_hit) through_pages += row.pages;
            else engine::touch(row.page.word, row.page.seen), ++hits;
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

    void look(row_look& row, page_look* later) const {
        const std::uint64_t first = row.at >> c_.page_shift,
                            last = (row.at + job_.table.row_bytes - 1) >> c_.page_shift;
        row.is_hit = false;
        row.pages = 1;
        row.page.take(c_, *row.file, first);
        bool may_read_past = last - first < most_pages && row.page.may_read_past();
        for (; may_read_past && first + row.pages <= last; ++row.pages) {
            page_look& page = later[row.pages - 1];
            page.take(c_, *row.file, first + row.pages);
            may_read_past = page.may_read_past();
        }
        if (may_read_past) return;
        row.from = nullptr;
        // Where copies must not race a hit pins its page (engine/read.hpp).
        if (first != last || !lane::copies_race() || !engine::is_valid(row.page.seen)) return;
        row.is_hit = true;
        row.from =
            c_.frame_address(engine::frame_of(row.page.seen)) + (row.at & (c_.page_bytes() - 1));
    }

    [[nodiscard]] static bool are_pages_as_seen(const row_look& row, const page_look* later) {
        bool same = row.page.is_as_seen();
        for (std::uint32_t i = 1; i < row.pages; ++i) same = same && later[i - 1].is_as_seen();
        return same;
    }

    const engine::cache_view& c_;
    const table_job& job_;
    std::uint64_t first_ = 0;
    std::uint32_t count_ = 0;
    const engine::file_handle* file_ = nullptr;  // of the row before, with its window
    engine::window_word window_ = 0;
    row_look rows_[row_batches::batch_rows];
    page_look later_[row_batches::batch_rows][most_pages - 1];
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
