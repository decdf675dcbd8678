// Everything a program needs: the runtime, the file calls, launch, regions, mounts, the buffer. In
// a .cu file also the GPU groups.
#pragma once

#include "penstock/advise.hpp"
#include "penstock/buffer.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "penstock/host_file.hpp"
#include "penstock/launch.hpp"
#include "penstock/merge.hpp"
#include "penstock/mount.hpp"
#include "penstock/options.hpp"
#include "penstock/region.hpp"
#include "penstock/runtime.hpp"
#include "penstock/statistics.hpp"
#include "penstock/stream.hpp"
#include "penstock/table.hpp"
#include "penstock/table_layout.hpp"
#include "penstock/version.hpp"
#include "penstock/view.hpp"
#include "penstock/write.hpp"
#include "penstock/write_view.hpp"
