// The low-level interface of libfuse, in the one version that this code is written against.
#pragma once

#define FUSE_USE_VERSION 312

#include <fuse_lowlevel.h>
