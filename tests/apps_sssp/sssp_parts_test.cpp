// The parts of penstock-sssp that have a simple truth to be compared with, and what the program
// itself cannot be brought to.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <set>
#include <vector>

#include "solver.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {
namespace {

struct graph {
    std::vector<std::uint64_t> offsets{0};
    std::vector<edge> edges;

    void end_vertex() { offsets.push_back(edges.size()); }
    [[nodiscard]] graph_view view() const {
        return {offsets.data(), edges.data(), offsets.size() - 1, edges.size()};
    }
    [[nodiscard]] graph_shape shape() const { return {offsets.size() - 1, edges.size()}; }
};

graph random_graph(unsigned seed, std::uint32_t vertices, std::uint32_t most_edges,
                   std::uint32_t most) {
    std::mt19937 dice(seed);
    graph out;
    for (std::uint32_t v = 0; v < vertices; ++v) {
        // Some have very many, which are worked on in parts.
        const std::uint32_t count = dice() % 50 == 0 ? 40 * most_edges : dice() % (most_edges + 1);
        for (std::uint32_t i = 0; i < count; ++i)
            out.edges.push_back({static_cast<std::uint32_t>(dice() % vertices),
                                 static_cast<std::uint32_t>(dice() % (most + 1))});
        out.end_vertex();
    }
    return out;
}

std::unique_ptr<solver> solver_for(const graph& g, std::uint32_t delta, std::uint32_t threads) {
    std::unique_ptr<solver> out;
    const status made = make_cpu_solver({g.shape(), delta, threads, 0, {}}, out);
    EXPECT_TRUE(made.ok()) << made.message;
    return out;
}

TEST(sssp_search, finds_what_the_textbook_finds_with_any_threads_and_buckets) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
        const graph g = random_graph(seed, 3000, 4 * seed, seed == 3 ? 1000000 : 100);
        for (const std::uint32_t threads : {1u, 2u, 5u})
            for (const std::uint32_t delta : {1u, 10u, 1000000000u}) {
                const auto by = solver_for(g, delta, threads);
                std::vector<std::uint32_t> found(g.shape().vertices);
                // Twice with one solver: nothing is left of the first.
                for (const std::uint32_t source : {seed, 2999u}) {
                    ASSERT_TRUE(by->compute(g.view(), source).ok());
                    ASSERT_TRUE(by->copy_distances(found.data()).ok());
                    ASSERT_EQ(found, plain_distances(g.view(), source))
                        << "seed " << seed << ", " << threads << " threads, buckets of " << delta;
                }
            }
    }
}

// With buckets that are not too wide, no edge is followed much more than once.
TEST(sssp_search, does_little_in_vain) {
    const graph g = random_graph(7, 20000, 30, 100);
    const auto by = solver_for(g, usual_delta(g.shape(), most_weight), 2);
    ASSERT_TRUE(by->compute(g.view(), 0).ok());
    EXPECT_LT(by->last().edges, 1.3 * static_cast<double>(g.edges.size()));
    EXPECT_LT(by->last().step, 400u);
}

TEST(sssp_search, takes_few_steps_for_a_long_chain) {
    graph g;
    for (std::uint32_t v = 1; v <= 20000; ++v) {
        g.edges.push_back({v % 20000, 100});
        g.end_vertex();
    }
    const auto by = solver_for(g, 1, 1);
    ASSERT_TRUE(by->compute(g.view(), 0).ok());
    EXPECT_LT(by->last().step, 20000u + 200u);
}

// A program changes more than weights while the graph is searched.
TEST(sssp_search, looks_at_nothing_outside_of_a_damaged_graph) {
    const graph good = random_graph(3, 500, 10, 100);
    const auto by = solver_for(good, 10, 2);
    ASSERT_LT(good.offsets[0], good.offsets[1]);
    graph target = good, past = good, back = good;
    target.edges[0].target = 500;
    for (std::size_t v = 1; v < past.offsets.size(); ++v) past.offsets[v] += past.edges.size();
    for (std::size_t v = 1; v < back.offsets.size(); v += 2)
        back.offsets[v] = ~std::uint64_t{0} - v;
    for (const graph* bad : {&target, &past, &back}) {
        const status ended = by->compute(bad->view(), 0);
        EXPECT_EQ(ended.code, -EINVAL) << ended.message;
        // From other vertices it is not always met.
        for (std::uint32_t source = 1; source < 20; ++source)
            static_cast<void>(by->compute(bad->view(), source));
    }
    EXPECT_TRUE(by->compute(good.view(), 0).ok());
}

TEST(sssp_search, says_when_a_path_is_too_long) {
    graph g;
    for (std::uint32_t v = 1; v < 4; ++v) {
        g.edges.push_back({v, 2000000000});
        g.end_vertex();
    }
    g.end_vertex();
    const auto by = solver_for(g, 7, 1);
    EXPECT_EQ(by->compute(g.view(), 0).code, -EOVERFLOW);
    EXPECT_TRUE(by->compute(g.view(), 1).ok());
}

graph of_lists(const std::vector<std::vector<edge>>& lists) {
    graph out;
    for (const std::vector<edge>& edges : lists) {
        out.edges.insert(out.edges.end(), edges.begin(), edges.end());
        out.end_vertex();
    }
    return out;
}

// A path that is too long counts only where it is the shortest one: what a search meets on its way
// depends on the order in which it follows edges.
TEST(sssp_search, takes_a_graph_whose_distances_fit) {
    const std::uint32_t greatest = unreachable - 1;
    const graph detour = of_lists({{{1, 100}, {2, 1}}, {{3, greatest - 2}}, {{1, 1}}, {}});
    const graph both_ways = of_lists({{{1, greatest}, {2, 7}}, {{2, 1}}, {}});
    const graph behind = of_lists({{{1, greatest}, {2, 5}}, {{3, greatest}}, {{1, 0}, {3, 9}}, {}});
    for (const graph* const g : {&detour, &both_ways, &behind})
        for (const std::uint32_t delta : {1u, 10u, 1000000000u})
            for (const std::uint32_t threads : {1u, 3u}) {
                const auto by = solver_for(*g, delta, threads);
                std::vector<std::uint32_t> found(g->shape().vertices);
                const status ended = by->compute(g->view(), 0);
                ASSERT_TRUE(ended.ok()) << ended.message;
                ASSERT_TRUE(by->copy_distances(found.data()).ok());
                ASSERT_EQ(found, plain_distances(g->view(), 0));
            }
    // One more, and no path fits.
    const graph too_far = of_lists({{{1, 100}, {2, 1}}, {{3, greatest - 1}}, {{1, 1}}, {}});
    for (const std::uint32_t delta : {1u, 1000000000u})
        EXPECT_EQ(solver_for(too_far, delta, 2)->compute(too_far.view(), 0).code, -EOVERFLOW);
}

TEST(sssp_search, gives_up_when_interrupted) {
    const graph g = random_graph(5, 100, 3, 100);
    std::unique_ptr<solver> by;
    ASSERT_TRUE(make_cpu_solver({g.shape(), 1, 1, 0, [] { return true; }}, by).ok());
    EXPECT_EQ(by->compute(g.view(), 0).code, -ECANCELED);
}

TEST(sssp_updates, choose_as_many_pages_as_asked_for_each_once_and_spread) {
    for (const std::uint64_t pages : {1ull, 7ull, 120ull, 1000ull})
        for (const double percent : {0.0, 0.1, 1.0, 33.0, 99.0, 100.0})
            for (std::uint64_t round = 1; round < 4; ++round) {
                const page_choice chosen(pages, percent, 1, round);
                std::set<std::uint64_t> seen;
                for (std::uint64_t i = 0; i < chosen.count(); ++i) seen.insert(chosen.page(i));
                ASSERT_EQ(seen.size(), chosen.count());
                ASSERT_TRUE(seen.empty() || *seen.rbegin() < pages);
                ASSERT_EQ(chosen.count() == 0, percent == 0);
                ASSERT_LE(static_cast<double>(chosen.count()),
                          std::max(1.0, percent / 100 * static_cast<double>(pages) + 0.5));
                ASSERT_TRUE(percent < 100 || chosen.count() == pages);
                // None is farther from the next than its share.
                std::uint64_t last = seen.empty() ? 0 : *seen.begin();
                for (const std::uint64_t page : seen) {
                    ASSERT_LE(page - last, pages / chosen.count() + 1);
                    last = page;
                }
            }
    EXPECT_NE(page_choice(100000, 1, 1, 1).page(0), page_choice(100000, 1, 1, 2).page(0));
}

TEST(sssp_numbers, are_in_their_range_and_differ) {
    std::set<std::uint32_t> weights, targets;
    const made_targets made(1, 1000);
    for (std::uint64_t e = 0; e < 20000; ++e) {
        weights.insert(weight_of(weights_of_round(1, 3), e));
        targets.insert(made.of(e));
    }
    EXPECT_EQ(weights.size(), 100u);
    EXPECT_EQ(*weights.begin(), 1u);
    EXPECT_EQ(*weights.rbegin(), 100u);
    EXPECT_GT(targets.size(), 990u);
    EXPECT_LT(*targets.rbegin(), 1000u);
}

}  // namespace
}  // namespace penstock::sssp
