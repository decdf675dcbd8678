// The parts of penstock-collage that have a simple truth to be compared with, and the CPU's half of
// the CUDA baseline, which needs no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>

#include "picture.hpp"
#include "methods.hpp"
#include "make_block.hpp"
#include "index_library.hpp"

namespace penstock::collage {
namespace {

picture random_picture(std::uint32_t width, std::uint32_t height, unsigned seed) {
    picture out{width, height, std::vector<std::uint8_t>(std::size_t{width} * height * 3)};
    std::mt19937 dice(seed);
    std::uint32_t value = 0;
    for (std::uint8_t& byte : out.rgb) byte = static_cast<std::uint8_t>(value += dice() % 5);
    return out;
}

TEST(collage_distance, is_the_sum_of_squares_for_every_length) {
    std::mt19937 dice(1);
    std::vector<std::uint32_t> a(bins), b(bins);
    for (std::uint32_t i = 0; i < bins; ++i) {
        a[i] = dice() % 1025;
        b[i] = dice() % 1025;
    }
    for (std::uint32_t count = 0; count <= bins; count += count < 70 ? 1 : 53) {
        std::uint64_t expected = 0;
        for (std::uint32_t i = 0; i < count; ++i)
            expected += (std::int64_t{a[i]} - b[i]) * (std::int64_t{a[i]} - b[i]);
        EXPECT_EQ(distance_of(a.data(), b.data(), count), expected)
            << count << " bins with " << vector_name();
    }
}

TEST(collage_tiling, cuts_as_many_as_asked_and_numbers_them_without_gaps) {
    const std::vector<source_picture> pictures{
        {"a", 200, 150}, {"b", 31, 500}, {"c", 32, 32}, {"d", 97, 64}};
    for (const std::uint64_t wanted : {0, 1, 7, 50, 1000, 5000}) {
        tiling plan;
        ASSERT_TRUE(plan_tiles(pictures, 3, 0, wanted, plan).ok());
        EXPECT_EQ(plan.pictures.size(), 3u);
        EXPECT_EQ(plan.tiles, wanted == 0 ? plan.places : wanted);
        std::uint64_t next = 0;
        for (std::uint64_t at = 0; at < plan.places; ++at) {
            EXPECT_EQ(plan.tiles_before(at), next);
            if (plan.tiles_before(at + 1) != next) ++next;
        }
        EXPECT_EQ(next, plan.tiles);
    }
    tiling plan;
    EXPECT_EQ(plan_tiles(pictures, 3, 0, 1000000, plan).code, -ERANGE);
    EXPECT_EQ(plan_tiles({{"b", 31, 500}}, 3, 0, 0, plan).code, -ERANGE);
}

TEST(collage_pyramid, hands_out_the_bands_of_every_scale) {
    const picture whole = random_picture(150, 211, 2);
    for (const std::uint32_t stride : {1u, 5u, 32u, 40u}) {
        tiling plan;
        ASSERT_TRUE(plan_tiles({{"a", whole.width, whole.height}}, 3, stride, 0, plan).ok());
        std::vector<picture> scales{whole};
        while (scales.size() < plan.pictures[0].levels.size()) {
            const picture& last = scales.back();
            picture next{last.width / 2, last.height / 2, {}};
            next.rgb.resize(std::size_t{next.width} * next.height * 3);
            for (std::uint32_t y = 0; y < next.height; ++y)
                halve_rows(&last.rgb[std::size_t{2 * y} * last.width * 3],
                           &last.rgb[std::size_t{2 * y + 1} * last.width * 3], next.width,
                           &next.rgb[std::size_t{y} * next.width * 3]);
            scales.push_back(std::move(next));
        }
        std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
        pyramid rows(
            plan.pictures[0], stride,
            [&](std::uint32_t level, std::uint32_t row, const std::uint8_t* pixels) {
                EXPECT_TRUE(seen.emplace(level, row).second);
                const picture& of = scales[level];
                const auto from = of.rgb.begin() + std::ptrdiff_t{row} * stride * of.width * 3;
                EXPECT_TRUE(std::equal(from, from + std::ptrdiff_t{32} * of.width * 3, pixels))
                    << level << " " << row;
            });
        for (std::uint32_t y = 0; y < whole.height; ++y) {
            std::copy_n(&whole.rgb[std::size_t{y} * whole.width * 3], whole.width * 3,
                        rows.next_row());
            rows.push();
        }
        std::size_t expected = 0;
        for (const level_plan& level : plan.pictures[0].levels) expected += level.rows;
        EXPECT_EQ(seen.size(), expected);
    }
}

TEST(collage_order, names_every_block_once) {
    for (const auto& [width, height] : {std::pair{1u, 1u},
                                        {200u, 33u},
                                        {64u, 320u},
                                        {500u, 500u},
                                        {1300u, 1100u},
                                        {33u, 50000u}}) {
        const picture in = random_picture(width, height, width);
        const std::vector<std::uint32_t> order = block_order(in, 1);
        const std::set<std::uint32_t> seen(order.begin(), order.end());
        EXPECT_EQ(order.size(), std::size_t{(width + 31) / 32} * ((height + 31) / 32));
        EXPECT_EQ(seen.size(), order.size());
        EXPECT_EQ(*seen.rbegin(), order.size() - 1);
        EXPECT_EQ(block_order(in, 3), order) << "by three threads";
    }
}

// Of a picture in which blocks of a few colours lie in disorder, all of one colour come together.
TEST(collage_order, brings_blocks_of_like_colours_together) {
    constexpr std::uint32_t side = 40, colours = 5;
    static_assert(side * side >= least_ordered_blocks);
    picture in{side * tile_side, side * tile_side, {}};
    in.rgb.resize(std::size_t{in.width} * in.height * 3);
    std::mt19937 dice(6);
    std::vector<std::uint32_t> colour_of(std::size_t{side} * side);
    for (std::uint32_t& colour : colour_of) colour = dice() % colours;
    for (std::uint32_t y = 0; y < in.height; ++y)
        for (std::uint32_t x = 0; x < in.width; ++x)
            for (std::uint32_t c = 0; c < 3; ++c)
                in.rgb[(std::size_t{y} * in.width + x) * 3 + c] = static_cast<std::uint8_t>(
                    colour_of[y / tile_side * side + x / tile_side] * 40 + c * 25 + dice() % 8);
    const std::vector<std::uint32_t> order = block_order(in, 2);
    std::uint32_t changes = 0;
    for (std::size_t i = 1; i < order.size(); ++i)
        changes += colour_of[order[i]] != colour_of[order[i - 1]];
    EXPECT_EQ(changes, colours - 1);
}

class collage_gather : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "collage-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        std::filesystem::create_directory(folder_ / "pictures");
        const picture image = random_picture(300, 200, 3);
        std::ofstream file(folder_ / "pictures" / "one.ppm", std::ios::binary);
        file << "P6 300 200 255\n";
        file.write(reinterpret_cast<const char*>(image.rgb.data()),
                   static_cast<std::streamsize>(image.rgb.size()));
        file.close();
        index_request asked;
        asked.quiet = true;
        asked.threads = 2;
        asked.folder = (folder_ / "pictures").string();
        asked.out = (folder_ / "lib").string();
        asked.stride = 6;
        index_report report;
        const status made = index_library(asked, report);
        ASSERT_TRUE(made.ok()) << made.message;
        ASSERT_TRUE(open_library(asked.out, library_).ok());
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path folder_;
    library library_;
};

// Of a damaged or hostile table more tiles may come than there is room for, and threads of a group
// that see the last place free at the same time each count one.
TEST(collage_candidates, are_no_more_than_the_list_has_places) {
    const auto state = std::make_unique<state_of<lane>>();
    state->count = most_candidates + 255;
    state->first = most_candidates + 100;
    EXPECT_FALSE(fall_back(lane{}, 1 << 20, *state));
    EXPECT_EQ(state->count, most_candidates);
    EXPECT_EQ(state->first, 100u);
}

// Gathers all blocks batch by batch, compares as the second kernel would, and expects the picture
// of the other baseline.
TEST_F(collage_gather, references_lead_to_the_candidates_that_the_cpu_compares) {
    const picture in = random_picture(333, 211, 4);
    picture expected, out;
    options settings;
    method_report report;
    ASSERT_TRUE(make_with_cpu({library_, in, settings, true}, expected, report).ok());
    mapped_library mapped;
    ASSERT_TRUE(mapped.open(library_).ok());
    collage_sides sides(1);
    sides.front().memory = apps::make_host_memory();
    ASSERT_TRUE(place_collage({library_, in, settings, true}, false, out, sides).ok());
    const collage_view& view = sides.front().view;
    std::vector<std::uint64_t> keys(view.blocks() * tables);
    std::vector<std::vector<std::uint32_t>> histograms;
    for (std::uint64_t b = 0; b < view.blocks(); ++b) {
        state_of<lane> s;
        count_block(lane{}, view, b, s);
        hash_block(lane{}, view.lsh, s);
        std::copy_n(s.keys, tables, keys.begin() + static_cast<std::ptrdiff_t>(b * tables));
        histograms.emplace_back(s.histogram, s.histogram + bins);
    }
    constexpr std::uint32_t threads = 3;
    const batch_room room = room_for(threads);
    std::vector<std::uint32_t> records(std::size_t{room.records} * bins), ids(room.records),
        references(room.references);
    std::vector<reference_range> ranges(room.blocks);
    const std::vector<std::uint32_t> order = block_order(in, 1);
    gatherer gather(mapped, view, keys.data(), order.data(), threads);
    for (std::uint64_t first = 0; first < view.blocks();) {
        staged_batch batch{records.data(), ids.data(), references.data(), ranges.data()};
        ASSERT_TRUE(gather.gather(first, batch).ok());
        ASSERT_GT(batch.blocks, 0u);
        for (std::uint64_t at = first; at < first + batch.blocks; ++at) {
            const std::uint64_t b = order[at];
            std::uint64_t best = no_score;
            for (std::uint32_t i = 0; i < ranges[at - first].count; ++i) {
                const std::uint32_t record = references[ranges[at - first].begin + i];
                ASSERT_LT(record, batch.record_count);
                best = std::min(best, score_of(distance_of(&records[std::size_t{record} * bins],
                                                           histograms[b].data(), bins),
                                               ids[record]));
            }
            const std::uint8_t* pixels = nullptr;
            mapped.tile(lane{}, static_cast<std::uint32_t>(best), nullptr, pixels);
            const std::size_t corner =
                (b / view.columns * 32 * view.width + b % view.columns * 32) * 3;
            EXPECT_TRUE(std::equal(pixels, pixels + 3,
                                   expected.rgb.begin() + static_cast<std::ptrdiff_t>(corner)))
                << "block " << b;
        }
        first += batch.blocks;
    }
    EXPECT_EQ(gather.evaluations(), report.evaluations);
    EXPECT_EQ(gather.unique_tiles(), report.unique_tiles);
    EXPECT_EQ(gather.fallback_blocks(), report.fallback_blocks);
}

// A tile that two devices compared is one tile.
TEST_F(collage_gather, counts_of_several_devices_are_put_together) {
    const picture in = random_picture(100, 70, 5);
    picture out;
    const options settings;
    const collage_job job{library_, in, settings, true};
    collage_sides sides(3);
    for (collage_side& side : sides) side.memory = apps::make_host_memory();
    ASSERT_TRUE(place_collage(job, false, out, sides).ok());
    for (std::uint64_t i = 0; i < sides.size(); ++i) {
        const collage_view& view = sides[i].view;
        EXPECT_EQ(view.out, out.rgb.data());
        view.seen[0] = 1 | std::uint64_t{2} << i;
        *view.totals = {100 + i, i, 0};
    }
    std::vector<collage_totals> totals;
    ASSERT_TRUE(download_result(sides, out, totals).ok());
    method_report report;
    ASSERT_TRUE(note_counts(job, sides, totals, report).ok());
    EXPECT_EQ(report.evaluations, 303u);
    EXPECT_EQ(report.evaluations_by_device, (std::vector<std::uint64_t>{100, 101, 102}));
    EXPECT_EQ(report.fallback_blocks, 3u);
    EXPECT_EQ(report.unique_tiles, 4u);
    sides[2].view.totals->code = -EBADMSG;
    ASSERT_TRUE(download_result(sides, out, totals).ok());
    EXPECT_EQ(note_counts(job, sides, totals, report).code, -EBADMSG);
}

// A folder below the system's for passing files, removed at the end.
class own_folder {
public:
    own_folder() {
        std::string name = std::filesystem::temp_directory_path() / "collage-parts-XXXXXX";
        path_ = ::mkdtemp(name.data());
    }
    ~own_folder() { std::filesystem::remove_all(path_); }
    std::string at(const std::string& name) const { return path_ + "/" + name; }
    std::size_t entries() const {
        const std::filesystem::directory_iterator begin(path_), end;
        return static_cast<std::size_t>(std::distance(begin, end));
    }

private:
    std::string path_;
};

std::string content_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// As if another program had made them while the library was.
TEST(collage_staging, leaves_what_came_to_its_place_meanwhile) {
    const own_folder folder;
    const std::string out = folder.at("lib");
    for (const char* const name : {"header", "tiles", "diary"}) {
        {
            staging_folder staged;
            ASSERT_TRUE(staged.create(out).ok());
            std::ofstream(staged.file(tiles_name)) << "new";
            std::filesystem::create_directory(out);
            std::ofstream(out + "/" + name) << "mine";
            EXPECT_EQ(staged.commit().code, -ENOTEMPTY) << name;
        }
        EXPECT_EQ(content_of(out + "/" + name), "mine");
        EXPECT_EQ(folder.entries(), 1u);
        std::filesystem::remove_all(out);
    }
    {
        staging_folder staged;
        ASSERT_TRUE(staged.create(out).ok());
        std::ofstream(out) << "mine";
        EXPECT_EQ(staged.commit().code, -EEXIST);
    }
    EXPECT_EQ(content_of(out), "mine");
    EXPECT_EQ(folder.entries(), 1u);
}

TEST(collage_staging, takes_the_place_of_an_empty_folder) {
    const own_folder folder;
    const std::string out = folder.at("lib");
    std::filesystem::create_directory(out);
    staging_folder staged;
    ASSERT_TRUE(staged.create(out).ok());
    std::ofstream(staged.file(tiles_name)) << "new";
    EXPECT_TRUE(staged.commit().ok());
    EXPECT_EQ(content_of(out + "/tiles"), "new");
    EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace penstock::collage
