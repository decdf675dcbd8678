// The verbs of the model test that read rows of tables by their numbers: gather, by the call that
// kernels use and by the one that the host's gathers come down to, and read_row.
//
// An actor makes its tables itself, from descriptors that it has open, as the host makes those of a
// program. Every row must be right byte for byte, or zeros where it cannot be had: then it is
// counted in the result, and the table's note names one of these rows with its code.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "model/table_plan.hpp"
#include "model/view_reader.hpp"
#include "penstock/engine/wish.hpp"
#include "penstock/table.hpp"

namespace penstock::model {

struct table_reader : view_reader {
    // Canary: now and then a list names the row behind the one that the judge believes.
    bool shifts_numbers;

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void pick_rows(const Group& g, const runtime_ref& fs,
                                                 const memory& m, std::uint32_t held,
                                                 const operation& op) const {
        call c;
        if (!begin(g, fs, m, held, op, c)) return;
        c.look = look_at_row(g, fs, m, c, op.where);
        const std::uint64_t failed = deliver(g, fs, m, c, op.which);
        judge_call(g, fs, m, c, failed);
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void pick_row(const Group& g, const runtime_ref& fs,
                                                const memory& m, std::uint32_t held,
                                                const operation& op) const {
        call c;
        c.kind = verb::read_row;
        if (!begin(g, fs, m, held, op, c)) return;
        c.look = look_at_row(g, fs, m, c, op.where);
        const std::int64_t number = c.list.at(0);
        const std::int64_t got =
            read_row(g, fs, c.table, static_cast<std::uint64_t>(number), c.out);
        const std::uint64_t missing = judge_call(g, fs, m, c, got < 0 ? 1 : 0);
        const std::int64_t expected = !c.list.has_row(number) ? -ERANGE
                                      : missing > 0 && got < 0
                                          ? -ESTALE
                                          : static_cast<std::int64_t>(c.plan.row_bytes);
        if (got != expected) wrong_call(g, m, c, 0, got, expected);
    }

private:
    // A row of a list, and the word of its first page before the call.
    struct row_look {
        std::uint64_t place;  // no_look: none
        engine::page_word seen;
    };
    static constexpr std::uint64_t no_look = ~std::uint64_t{0};

    // What the threads of a group know of a call; equal in all of them, but for `look`, which is
    // the leader's.
    struct call {
        verb kind = verb::gather;
        table_plan plan;
        list_plan list;
        table_ref table;
        std::byte* out;
        std::uint64_t taken;  // by the host, as far as the note says
        bool has_note;        // which the host has not taken yet, so that no other may come
        row_look look;
    };

    template <typename Group>
    PENSTOCK_HD void wrong_call(const Group& g, const memory& m, const call& c, std::uint64_t place,
                                std::int64_t got, std::int64_t expected) const {
        wrong(g, m, c.kind, m.open[c.plan.runs[0].held].file, place, c.plan.row_bytes, got,
              expected, {0, 0});
    }

    // --- before the call

    // False if the file has no rows.
    template <typename Group>
    PENSTOCK_HD bool begin(const Group& g, const runtime_ref& fs, const memory& m,
                           std::uint32_t held, const operation& op, call& c) const {
        if (!plan_table(w, m.open, held, scratch_room(), op.extra, c.plan)) return false;
        c.list = plan_list(w, c.plan, scratch_room(), op.length);
        if (c.kind == verb::read_row) {
            c.list.has_padding = false;
            c.list.count = 1;
        }
        c.out = m.buffer + guard_bytes + c.list.shift;
        c.taken = op.which % 5;
        c.has_note = (op.which >> 8) % 8 == 0;
        if (!make_table(g, fs, m, c)) return false;
        put_numbers(g, m, c);
        const std::uint64_t bytes = c.list.count * c.list.stride_bytes;
        for (std::uint64_t i = g.rank(); i < bytes + 32; i += g.size())
            c.out[static_cast<std::int64_t>(i) - 16] = filling(i);
        g.sync();
        return true;
    }

    PENSTOCK_HD static std::byte filling(std::uint64_t i) {
        return static_cast<std::byte>(0xa5 ^ (i * 29));
    }

    // As the host makes it (src/table/table.cpp).
    template <typename Group>
    PENSTOCK_HD bool make_table(const Group& g, const runtime_ref& fs, const memory& m,
                                call& c) const {
        engine::table_view& t = c.table.view;
        t = {};
        t.runs = m.desk->runs;
        t.rows = c.plan.rows;
        t.row_bytes = c.plan.row_bytes;
        t.stride_bytes = c.plan.stride_bytes;
        t.rows_per_run = c.plan.rows_per_run();
        t.run_count = c.plan.run_count;
        t.claimed = &m.desk->claimed;
        t.note = &m.desk->note;
        std::uint64_t low = t.stride_bytes;
        for (std::uint32_t i = 0; i < t.run_count; ++i) {
            const planned_run& run = c.plan.runs[i];
            const int fd = m.open[run.held].fd;
            engine::table_run made{{}, run.first_byte, run.first_row, run.rows, fd};
            if (!engine::find_file(fs.view, fd, made.file)) {
                wrong_call(g, m, c, i, -EBADF, 0);
                return false;
            }
            if (g.is_leader()) m.desk->runs[i] = made;
            if (i == 0) t.only = made;
            low |= run.first_byte;
        }
        t.parts = engine::parts_of_row(fs.view.page_bytes(), low, t.row_bytes);
        t.low_bits = static_cast<std::uint32_t>((low | t.row_bytes) & 15);
        if (g.is_leader()) {
            const std::uint64_t published = c.taken + (c.has_note ? 1 : 0);
            m.desk->note = {old_code, old_number, 0, 1, 0, published, c.taken};
            m.desk->claimed = published;
        }
        return true;
    }
    static constexpr std::int64_t old_code = -77, old_number = 77;

    template <typename Group>
    PENSTOCK_HD void put_numbers(const Group& g, const memory& m, const call& c) const {
        for (std::uint64_t i = g.rank(); i < c.list.count; i += g.size()) {
            std::int64_t number = c.list.at(i);
            if (shifts_numbers && c.list.has_row(number) && mix(c.list.r, i, 1) % 1000 == 0)
                number = static_cast<std::int64_t>((static_cast<std::uint64_t>(number) + 1) %
                                                   c.plan.rows);
            const std::uint64_t bytes = c.list.is_short() ? 4 : 8;
            std::memcpy(m.desk->numbers + i * bytes, &number, bytes);  // the lowest bytes
        }
    }

    // A row of the list before the call, to know where its first bytes come from.
    template <typename Group>
    PENSTOCK_HD row_look look_at_row(const Group& g, const runtime_ref& fs, const memory& m,
                                     const call& c, std::uint64_t r) const {
        row_look look{no_look, 0};
        if (!g.is_leader() || c.list.count == 0) return look;
        const std::uint64_t place = r % c.list.count;
        if (!c.list.has_row(c.list.at(place))) return look;
        return {place, word_of_row(fs, m, c, place)};
    }
    PENSTOCK_HD engine::page_word word_of_row(const runtime_ref& fs, const memory& m, const call& c,
                                              std::uint64_t place) const {
        const auto row = static_cast<std::uint64_t>(c.list.at(place));
        const auto run = static_cast<std::uint32_t>(&c.plan.run_of(row) - c.plan.runs);
        return engine::absence_of(fs.view, m.desk->runs[run].file,
                                  c.plan.byte_of(row) / w.page_bytes);
    }

    // --- the call

    // The engine takes short and long lists by different ways.
    static constexpr std::uint64_t many_rows = 10000;

    // Half of the lists of 64-bit numbers go by the call of kernels. The others go as the host
    // launches them: in two parts, some of a list that other groups have the rest of.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t deliver(const Group& g, const runtime_ref& fs,
                                                        const memory& m, const call& c,
                                                        std::uint64_t r) const {
        const list_plan& list = c.list;
        const bool is_dense = list.stride_bytes == c.plan.row_bytes;
        if (list.type == engine::number_type::int64 && !list.has_padding)
            return gather(g, fs, c.table, reinterpret_cast<const std::int64_t*>(m.desk->numbers),
                          list.count, c.out, is_dense && r % 2 == 0 ? 0 : list.stride_bytes);
        const engine::number_list numbers{m.desk->numbers, list.type, list.has_padding,
                                          list.padding};
        const std::uint64_t middle = (r >> 16) % (list.count + 1);
        const std::uint64_t whole = list.count + ((r >> 24) % 2 == 0 ? 0 : many_rows);
        if constexpr (narrow_group<Group>) {  // a hint, so the results are the same
            if ((r >> 28) % 4 == 0 && middle > 0) {
                engine::wish_list(g, fs.view, c.table.view, numbers, 0, middle, list.count);
                if (g.is_leader()) atomic_add_relaxed(&out->table_wishes, (middle + 31) / 32);
            }
        }
        std::uint64_t failed = 0;
        for (std::uint32_t part = 0; part < 2; ++part)
            failed += engine::deliver_list(g, fs.view, c.table.view, numbers, c.out,
                                           list.stride_bytes, part == 0 ? 0 : middle,
                                           part == 0 ? middle : list.count, whole);
        g.sync();
        return failed;
    }

    // --- after the call

    // `failed`: as the call said. Returns how many rows are zeros that need not be, in files that
    // were changing.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t judge_call(const Group& g, const runtime_ref& fs,
                                                           const memory& m, const call& c,
                                                           std::uint64_t failed) const {
        version_range ranges[files_held] = {};
        for (std::uint32_t i = 0; i < files_held; ++i) {
            bool is_used = false;
            for (std::uint32_t k = 0; k < c.plan.run_count; ++k)
                is_used = is_used || c.plan.runs[k].held == i;
            if (is_used) ranges[i] = range_of(g, m.open[i].file, m.open[i].floor);
        }
        check_gaps(g, m, c);
        std::uint64_t outside = 0, padded = 0, straddling = 0, missing = 0;
        for (std::uint64_t i = 0; i < c.list.count; ++i) {
            const std::int64_t number = c.list.at(i);
            const std::byte* const row = c.out + i * c.list.stride_bytes;
            if (!c.list.has_row(number)) {
                ++(c.list.is_padding(number) ? padded : outside);
                judge_zeros(g, m, c, i, row);
                continue;
            }
            const held_file& f = m.open[held_of(c, number)];
            const version_range& range = ranges[held_of(c, number)];
            const std::uint64_t at = c.plan.byte_of(static_cast<std::uint64_t>(number));
            if (at % w.page_bytes + c.plan.row_bytes > w.page_bytes) ++straddling;
            if (!range.exact() && is_zero(g, row, c.plan.row_bytes)) ++missing;
            else judge_bytes(g, m, c.kind, f.file, at, row, c.plan.row_bytes, range);
        }
        if (failed < outside || failed > outside + missing)
            wrong_call(g, m, c, c.list.count, static_cast<std::int64_t>(failed),
                       static_cast<std::int64_t>(outside));
        if (g.is_leader()) {
            judge_note(g, m, c, ranges, failed);
            atomic_add_relaxed(&out->table_rows, c.list.count);
            atomic_add_relaxed(&out->table_outside, outside);
            atomic_add_relaxed(&out->table_padded, padded);
            atomic_add_relaxed(&out->table_straddling, straddling);
            if (failed > outside) atomic_add_relaxed(&out->table_stale, failed - outside);
            count_source(fs, m, c, ranges);
        }
        g.sync();  // every thread has looked before the buffer is used again
        return missing;
    }

    PENSTOCK_HD static std::uint32_t held_of(const call& c, std::int64_t number) {
        return c.plan.run_of(static_cast<std::uint64_t>(number)).held;
    }

    // Nothing but the rows was written.
    template <typename Group>
    PENSTOCK_HD void check_gaps(const Group& g, const memory& m, const call& c) const {
        const std::uint64_t stride = c.list.stride_bytes, bytes = c.list.count * stride;
        check_filling(g, m, c, 0, 16);
        check_filling(g, m, c, 16 + bytes, 16);
        if (stride == c.plan.row_bytes) return;
        for (std::uint64_t i = 0; i < c.list.count; ++i)
            check_filling(g, m, c, 16 + i * stride + c.plan.row_bytes, stride - c.plan.row_bytes);
    }
    // `first` counts from the guard in front of the rows.
    template <typename Group>
    PENSTOCK_HD void check_filling(const Group& g, const memory& m, const call& c,
                                   std::uint64_t first, std::uint64_t bytes) const {
        for (std::uint64_t i = first + g.rank(); i < first + bytes; i += g.size()) {
            if (c.out[static_cast<std::int64_t>(i) - 16] == filling(i)) continue;
            atomic_add_relaxed(&out->written_outside, std::uint64_t{1});
            note(out, {m.actor, m.step, static_cast<std::uint32_t>(c.kind),
                       m.open[c.plan.runs[0].held].file, i, c.plan.row_bytes, 0, 0, 0, 0});
        }
    }

    template <typename Group>
    PENSTOCK_HD static bool is_zero(const Group& g, const std::byte* row, std::uint64_t bytes) {
        bool zero = true;
        for (std::uint64_t i = g.rank(); i < bytes && zero; i += g.size())
            zero = row[i] == std::byte{0};
        return g.all(zero);
    }

    // A row that does not exist.
    template <typename Group>
    PENSTOCK_HD void judge_zeros(const Group& g, const memory& m, const call& c,
                                 std::uint64_t place, const std::byte* row) const {
        std::uint64_t bad = 0;
        for (std::uint64_t i = g.rank(); i < c.plan.row_bytes; i += g.size())
            bad += row[i] != std::byte{0} ? 1 : 0;
        if (bad == 0) return;
        atomic_add_relaxed(&out->wrong_bytes, bad);
        note(out,
             {m.actor, m.step, static_cast<std::uint32_t>(c.kind), m.open[c.plan.runs[0].held].file,
              place, c.plan.row_bytes, c.list.at(place), 0, 0, 0});
    }

    // Leader only. The note says what it said before; or it names a row that failed, if one did and
    // the host had taken the note before.
    template <typename Group>
    PENSTOCK_HD void judge_note(const Group& g, const memory& m, const call& c,
                                const version_range* ranges, std::uint64_t failed) const {
        const engine::table_note& said = m.desk->note;
        const bool is_new = failed > 0 && !c.has_note;
        const std::uint64_t published = c.taken + (is_new || c.has_note ? 1 : 0);
        bool right = said.taken == c.taken &&
                     engine::look_published(&said.published) == published &&
                     atomic_load<order::relaxed>(&m.desk->claimed) == published;
        if (is_new) right = right && names_failed_row(c, said, ranges);
        else
            right = right && said.code == old_code && said.number == old_number &&
                    said.place == 0 && said.is_listed == 1;
        if (!right) wrong_call(g, m, c, said.place, said.code, said.number);
    }
    PENSTOCK_HD bool names_failed_row(const call& c, const engine::table_note& said,
                                      const version_range* ranges) const {
        const std::uint64_t is_listed = c.kind == verb::gather ? 1 : 0;
        if (said.is_listed != is_listed || said.place >= c.list.count) return false;
        const std::int64_t number = c.list.at(said.place);
        if (said.number != number || c.list.is_padding(number)) return false;
        if (!c.list.has_row(number)) return said.code == -ERANGE;
        if (said.code != -ESTALE || ranges[held_of(c, number)].exact()) return false;
        const std::byte* const row = c.out + said.place * c.list.stride_bytes;
        for (std::uint64_t i = 0; i < c.plan.row_bytes; ++i)
            if (row[i] != std::byte{0}) return false;
        return true;
    }

    // Leader only. A page that was absent in the same generation before and after was never in the
    // cache in between, so its row came through a window.
    PENSTOCK_HD void count_source(const runtime_ref& fs, const memory& m, const call& c,
                                  const version_range* ranges) const {
        if (c.look.place == no_look || !ranges[held_of(c, c.list.at(c.look.place))].exact()) return;
        const engine::page_word now = word_of_row(fs, m, c, c.look.place);
        const bool same = engine::same_frame(now, c.look.seen);
        if (engine::is_valid(c.look.seen) && same)
            atomic_add_relaxed(&out->table_hits, std::uint64_t{1});
        if (engine::is_absent(c.look.seen))
            atomic_add_relaxed(same ? &out->table_through : &out->table_misses, std::uint64_t{1});
    }
};

}  // namespace penstock::model
