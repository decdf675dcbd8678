// The threads of one group go the same way, and return the same, whatever other groups do to the
// file meanwhile: a block of several warps would hang else.
#include <atomic>
#include <functional>
#include <thread>

#include "penstock/advise.hpp"
#include "penstock/gather.hpp"
#include "penstock/table.hpp"
#include "penstock/view.hpp"
#include "penstock/write.hpp"
#include "rounds.hpp"
#include "unit/support.hpp"
#include "unit/team.hpp"

namespace penstock::test {

namespace {

class team_calls : public testing::Test {
protected:
    static constexpr std::uint64_t bytes = 256 * page, row = 512, rows_of_file = bytes / row;
    // What a call may use: where to put bytes, eight numbers of rows and a place in the file, the
    // same for both threads.
    struct room {
        std::vector<std::byte> out = std::vector<std::byte>(64 * 1024);
        std::vector<std::uint64_t> list = std::vector<std::uint64_t>(8);
        std::uint64_t at = 0, length = 0;
    };
    using call = std::function<std::int64_t(const team& g, room& shared)>;

    void begin(bool writable) {
        write_file(folder / "data", pattern(3, bytes));
        write_file(folder / "other", pattern(4, bytes));
        let_files_settle();
        options o = small_options(folder, 1);
        o.writable = writable;
        rt = make_runtime(o);
        fd = rt->open("data", writable ? open_read_write : open_read);
        ASSERT_GE(fd, 0);
    }
    // Another thread does so again and again until the test ends.
    void meanwhile(std::function<void()> work) {
        beside = std::jthread([this, work = std::move(work)] {
            while (!ended) work();
        });
    }
    // Half of the file goes and comes again.
    void cut_meanwhile() {
        meanwhile([this] {
            const std::byte last{1};
            rt->truncate(fd, bytes / 2);
            rt->write(fd, &last, 1, bytes - 1);
        });
    }
    void one_round(const team& g, const call& made, room& shared) {
        g.sync();
        if (g.is_leader()) {
            shared.at = random() % bytes;
            shared.length = random() % 20000;
            for (std::uint64_t& number : shared.list) number = random() % rows_of_file;
        }
        g.sync();
        const std::int64_t got = made(g, shared);
        if (g.broadcast(got) != got)
            throw std::logic_error("threads of one group got different results");
    }
    void run(int rounds, const call& made) {
        meeting at;
        room shared;
        std::array<std::string, 2> told;
        const auto work = [&](std::uint32_t rank) {
            const team g(at, rank);
            try {
                for (int i = 0; i < rounds; ++i) one_round(g, made, shared);
                g.leave();
            } catch (const std::logic_error& apart) {
                told[rank] = apart.what();
            }
        };
        std::thread other(work, 1);
        work(0);
        other.join();
        EXPECT_EQ(told[0], "");
        EXPECT_EQ(told[1], "");
    }
    ~team_calls() override {
        ended = true;
        if (beside.joinable()) beside.join();
    }

    temporary_folder folder;
    std::unique_ptr<runtime> rt;
    int fd = -1;

private:
    std::uint64_t random() { return mix64(++drawn); }

    std::uint64_t drawn = 0;
    std::atomic<bool> ended{false};
    std::jthread beside;
};

TEST_F(team_calls, gather_by_one_view_of_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    const row_view rows(fs, fd, {row, 0, 0});
    run(rounds(2000), [&](const team& g, room& shared) {
        return gather(g, rows, shared.list.data(), 8, shared.out.data());
    });
}

TEST_F(team_calls, gather_by_views_of_their_own_of_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(2000), [&](const team& g, room& shared) {
        const row_view rows(fs, fd, {row, 0, 0});
        return gather(g, rows, shared.list.data(), 8, shared.out.data());
    });
}

TEST_F(team_calls, gather_elements_of_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(2000), [&](const team& g, room& shared) {
        const view<std::uint64_t> elements(fs, fd);
        for (int i = 0; i < 8; ++i)
            if (g.is_leader()) shared.list[i] *= row / 8;
        g.sync();
        return gather(g, elements, shared.list.data(), 8,
                      reinterpret_cast<std::uint64_t*>(shared.out.data()));
    });
}

TEST_F(team_calls, copy_elements_of_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(2000), [&](const team& g, room& shared) {
        const view<std::uint64_t> elements(fs, fd);
        return elements.copy_to(g, reinterpret_cast<std::uint64_t*>(shared.out.data()),
                                shared.at / 8, shared.length / 8);
    });
}

TEST_F(team_calls, visit_elements_of_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(1000), [&](const team& g, room& shared) {
        const view<std::uint64_t> elements(fs, fd);
        return elements.for_each(g, shared.at / 8, shared.length / 8,
                                 [](std::uint64_t, std::uint64_t) {});
    });
}

TEST_F(team_calls, gather_from_a_table_whose_file_is_cut) {
    begin(true);
    std::unique_ptr<table> rows;
    table_layout layout;
    layout.row_bytes = row;
    layout.pieces = {{folder / "data", 0, rows_of_file}};
    const status made = table::make(*rt, layout, {}, rows);
    ASSERT_TRUE(made.ok()) << made.message;
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(2000), [&](const team& g, room& shared) {
        const auto* const numbers = reinterpret_cast<const std::int64_t*>(shared.list.data());
        return static_cast<std::int64_t>(gather(g, fs, rows->ref(), numbers, 8, shared.out.data()));
    });
}

TEST_F(team_calls, verbs_on_a_file_that_is_cut) {
    begin(true);
    cut_meanwhile();
    const runtime_ref fs = rt->ref();
    run(rounds(3000), [&](const team& g, room& shared) -> std::int64_t {
        const auto at = static_cast<std::int64_t>(shared.at),
                   length = static_cast<std::int64_t>(shared.length);
        switch (shared.list[0] % 6) {
            case 0: return read(g, fs, fd, shared.out.data(), length, at);
            case 1: return write(g, fs, fd, shared.out.data(), length / 4, at);
            case 2: {
                const mapping mapped = map(g, fs, fd, at, length);
                const std::int64_t got = mapped.data != nullptr ? mapped.bytes : -1;
                unmap(g, fs, mapped);
                return got;
            }
            case 3: {
                const auto mapped = map_write(g, fs, fd, at, length / 8 + 1);
                // The cut may clear it at the same time.
                if (mapped.data != nullptr && g.is_leader())
                    std::atomic_ref(mapped.data[0]).store(std::byte{7});
                return unmap(g, fs, mapped);
            }
            case 4: return prefetch(g, fs, fd, at, length);
            default: return msync(g, fs, fd, at, length);
        }
    });
}

// The program uses a descriptor that it has closed, whose number comes and goes again as other
// groups open the file.
class team_calls_by_closed_descriptor : public team_calls {
protected:
    int closed_number() {
        const int number = rt->open("other", open_read);
        EXPECT_GE(number, 0);
        rt->close(number);
        meanwhile([this] {
            const int opened = rt->open("other", open_read);
            if (opened >= 0) rt->close(opened);
        });
        return number;
    }
    void read_and_gather(int number) {
        const runtime_ref fs = rt->ref();
        run(rounds(20000), [&fs, number](const team& g, room& shared) -> std::int64_t {
            if (shared.list[0] % 2 == 0)
                return read(g, fs, number, shared.out.data(), 1000,
                            static_cast<std::int64_t>(shared.at));
            const row_view rows(fs, number, {row, 0, 0});
            return gather(g, rows, shared.list.data(), 8, shared.out.data());
        });
    }
};

TEST_F(team_calls_by_closed_descriptor, of_a_runtime_that_reads) {
    begin(false);
    read_and_gather(closed_number());
}

TEST_F(team_calls_by_closed_descriptor, of_a_runtime_that_writes) {
    begin(true);
    read_and_gather(closed_number());
}

}  // namespace

}  // namespace penstock::test
