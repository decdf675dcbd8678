#include "table/cpu_rows.hpp"

#include <algorithm>

#include "penstock/engine/through.hpp"
#include "runtime/runtime_state.hpp"
#include "table/row_batches.hpp"
#include "table/table_windows.hpp"

namespace penstock::host {

namespace {

constexpr int unknown = -2;

// So many rows are read past the cache by system calls until one of them enters it.
constexpr std::uint64_t rows_until_entry = 1024;

engine::cache_view with_windows(engine::cache_view c, const engine::cache_view& of_rows) {
    c.windows = of_rows.windows;
    c.window_chunks = of_rows.window_chunks;
    return c;
}

}  // namespace

cpu_rows::cpu_rows(runtime_state& state, table_windows* windows, const table_job& job)
    : state_(state),
      windows_(windows),
      view_(with_windows(state.ref.view, state.windows_of_rows.view)),
      job_(job),
      handles_(job.table.run_count),
      fds_(job.table.run_count) {
    for (std::atomic<int>& fd : fds_) fd.store(unknown, std::memory_order_relaxed);
}

int cpu_rows::handle_of(std::uint64_t run) {
    // Acquire: pairs with the release below, after which the handle is held.
    if (const int fd = fds_[run].load(std::memory_order_acquire); fd != unknown) return fd;
    const std::lock_guard lock(mutex_);
    if (const int fd = fds_[run].load(std::memory_order_relaxed); fd != unknown) return fd;
    const engine::file_handle& file = job_.table.runs[run].file;
    std::uint64_t size = 0;
    const int code = state_.files->handle_of(file.slot, file.generation, handles_[run], size);
    const int fd = code == 0 ? handles_[run]->fd() : -1;
    fds_[run].store(fd, std::memory_order_release);
    return fd;
}

bool cpu_rows::read_past(const engine::row_source& source, std::uint64_t run, std::byte* to) {
    const engine::cache_view& c = view_;
    const engine::file_handle& f = *source.file;
    const std::uint64_t bytes = job_.table.row_bytes, first = source.at >> c.page_shift,
                        pages = ((source.at + bytes - 1) >> c.page_shift) - first + 1;
    if (pages > engine::most_through_pages || engine::is_granted(c, f.slot) ||
        engine::is_cut_off(c, f.slot, source.at, bytes) || engine::stop_code(c) != 0)
        return false;
    engine::page_word seen[engine::most_through_pages];
    for (std::uint64_t i = 0; i < pages; ++i) {
        seen[i] = engine::absence_of(c, f, first + i);
        if (!engine::may_read_past(seen[i])) return false;
    }
    const int fd = handle_of(run);
    if (fd < 0) return false;
    // A block that another node has comes by a request.
    if (state_.blocks != nullptr && state_.blocks->wants(*handles_[run], source.at, bytes))
        return false;
    engine::end_load_for_read();  // the words were absent before a byte is read
    if (state_.hooks.env->read(fd, to, bytes, source.at) != static_cast<std::int64_t>(bytes))
        return false;
    engine::begin_recheck();  // the bytes were read before the words are looked at again
    for (std::uint64_t i = 0; i < pages; ++i)
        if (!engine::same_frame(engine::absence_of(c, f, first + i), seen[i])) return false;
    engine::count(lane{}, c, engine::count_through_reads, pages);
    if (state_.asked != nullptr) state_.asked->note(f.slot, f.generation, source.at, bytes);
    return true;
}

bool cpu_rows::is_row_next_door(const engine::row_source& source) const {
    const std::uint64_t first = source.at >> view_.page_shift,
                        last = (source.at + job_.table.row_bytes - 1) >> view_.page_shift;
    for (std::uint64_t page = first; page <= last; ++page)
        if (!engine::is_next_door(view_, *source.file, page)) return false;
    return true;
}

bool cpu_rows::deliver_one(std::uint64_t i, bool may_read_past) {
    const engine::table_view& t = job_.table;
    const engine::row_source source = engine::source_of(t, job_.list, i);
    std::byte* const to = job_.memory + i * job_.stride_bytes;
    if (source.is == engine::row_source::in_file && may_read_past && !is_row_next_door(source)) {
        const auto row = static_cast<std::uint64_t>(job_.list.at(i));
        if (read_past(source, engine::run_number(t, row), to)) return true;
    }
    engine::deliver_list(lane{}, state_.ref.view, t, job_.list, job_.memory, job_.stride_bytes, i,
                         i + 1, job_.count);
    return false;
}

void cpu_rows::deliver(std::uint64_t begin, std::uint64_t end) {
    for (; begin < end; begin += most_rows) deliver_some(begin, std::min(begin + most_rows, end));
}

void cpu_rows::deliver_some(std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t batch_rows = row_batches::batch_rows;
    std::uint32_t left[most_rows / batch_rows];
    // Asked before the windows are used: a row that lies in none because they are opened just now
    // must not enter.
    const bool may_enter = windows_ == nullptr || windows_->have_looked();
    {
        const window_visits::visit here(state_.windows_of_rows.visits);
        row_batches::copy(view_, job_, begin, end, left);
    }
    std::uint64_t turn = 0, by_call = 0;
    for (std::uint64_t first = begin; first < end; first += batch_rows)
        for (std::uint32_t rows = left[(first - begin) / batch_rows]; rows != 0; rows &= rows - 1) {
            if (turn == 0) turn = mix64(lane{}.now_ns());
            const std::uint64_t i = first + static_cast<std::uint64_t>(__builtin_ctz(rows));
            if (deliver_one(i, !may_enter || ++turn % rows_until_entry != 0)) ++by_call;
        }
    if (by_call != 0 && windows_ != nullptr) windows_->spend(by_call);
}

}  // namespace penstock::host
