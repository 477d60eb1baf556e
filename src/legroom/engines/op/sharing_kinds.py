"""The kinds of TensorFlow's operations by what their kernels do with the buffers of their inputs: the tables behind `sharing`."""


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ELEMENTWISE = """
    Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Inv
    Invert LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh
    Softplus Softsign Sqrt Square Tan Tanh
"""

FIRST_INPUT = _kinds(
    f"""
    {_ELEMENTWISE}
    _UnaryOpsComposition AdjustHue BiasAdd BiasAddV1 Cholesky ClipByValue FakeQuantWithMinMaxArgs LogSoftmax Lu MatrixBandPart MatrixInverse
    MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax OnesLike
    ScatterNdNonAliasingAdd Snapshot Softmax TensorStridedSliceUpdate ZerosLike
    """
)
"""Their first output takes their first input's buffer over."""

BINARY = _kinds(
    """
    Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor CholeskyGrad Div DivNoNan EluGrad Equal FakeQuantWithMinMaxArgsGradient
    FloorDiv FloorMod Greater GreaterEqual Igamma IgammaGradA Igammac InvGrad LeakyReluGrad LeftShift Less LessEqual LogicalAnd
    LogicalOr Maximum Minimum Mod Mul MulNoNan NextAfter NotEqual Polygamma Pow RealDiv ReciprocalGrad Relu6Grad ReluGrad
    RightShift RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad TruncateDiv
    TruncateMod Xdivy Xlogy Zeta
    """
)
"""Either input's, the first before the second, where it is as large as the output (the other may be broadcast)."""

CPU_ONLY = _kinds(
    """
    CholeskyGrad Lu MatrixInverse MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax Qr SelfAdjointEigV2 Svd
    """
)
"""Kinds with another kernel on a GPU, which was not tried: nothing is taken over there as far as we know."""

ALIASES = {
    **dict.fromkeys(
        _kinds("""
        Bitcast CheckNumerics CheckNumericsV2 Copy DebugGradientIdentity DebugIdentity DebugIdentityV2 EnsureShape Enter Exit
        ExpandDims GuaranteeConst Identity IdentityN InplaceAdd InplaceSub InplaceUpdate LoopCond Merge NextIteration
        PlaceholderWithDefault PreventGradient ReadVariableOp RefIdentity Reshape Squeeze StopGradient Switch TensorListGetItem
        TensorListPopBack TensorListPushBack TensorListSetItem _EagerConst _Retval Assign AssignAdd DestroyTemporaryVariable
        """),
        0,
    ),
}
"""The input that every output is (of IdentityN: each its own). A Merge has one input that lives: the first stands for it."""

REDUCTIONS = _kinds("All Any Max Mean Min Prod Sum")
"""They share their input where nothing is left to reduce."""

UPDATES = {
    **dict.fromkeys(_kinds("AssignAddVariableOp AssignSubVariableOp ResourceApplyGradientDescent"), (0,)),
    **dict.fromkeys(
        _kinds("""
        ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAddSign ResourceApplyKerasMomentum ResourceApplyMomentum
        ResourceApplyPowerSign ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyKerasMomentum
        ResourceSparseApplyMomentum
        """),
        (0, 1),
    ),
    **dict.fromkeys(
        _kinds("""
        ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdam ResourceApplyFtrl ResourceApplyFtrlV2
        ResourceApplyRMSProp ResourceSparseApplyAdadelta ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
        ResourceSparseApplyRMSProp
        """),
        (0, 1, 2),
    ),
    **dict.fromkeys(_kinds("ResourceApplyAdamWithAmsgrad ResourceApplyCenteredRMSProp"), (0, 1, 2, 3)),
}
"""The variables that an operation changes in place."""

COPY_ON_READ = _kinds(
    """
    ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul
    ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
    ResourceScatterUpdate ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2
    ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
    ResourceSparseApplyRMSProp ResourceStridedSliceAssign
    """
)
"""Kinds that put their variables into copy-on-read mode, for good: from then on every ReadVariableOp, dense update and assignment
makes a copy as large as the variable. An embedding's table is in it from its first look-up."""

HOST = _kinds(
    """
    BroadcastArgs BroadcastGradientArgs ConcatOffset InvertPermutation LoopCond Rank Shape ShapeN Size StatelessRandomGetAlg
    StatelessRandomGetKeyCounter TensorListElementShape TensorListLength VariableShape
    """
)
HOST_INT32 = _kinds(
    """
    Add AddV2 BroadcastTo Concat ConcatV2 Const Div ExpandDims Fill FloorDiv FloorMod Identity Max Maximum Min Minimum Mul Neg
    OnesLike Pack Pad PadV2 Prod Range Reshape ReverseV2 Slice Split Squeeze StridedSlice Sub Sum Tile Transpose TruncateDiv Unpack
    ZerosLike
    """
)
"""On a GPU: kinds whose outputs are in host memory, and kinds whose int32 kernel runs on the host."""

_ON_CONDITION = """
    AddN BroadcastTo Cast ConjugateTranspose Pack Pad PadV2 Select SelectV2 Slice Split SplitV StridedSlice Tile Transpose Unpack
"""

_OWN_OUTPUTS = """
    Copy DataFormatDimMap DataFormatVecPermute TemporaryVariable _FusedConv3D
    AccumulateNV2 AdjustContrastv2 Assert Placeholder _Arg AdjustSaturation Angle ApproximateEqual ArgMax ArgMin AssignVariableOp AvgPool AvgPool3D
    AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchToSpaceND Betainc BiasAddGrad Bincount Bucketize
    CTCGreedyDecoder CombinedNonMaxSuppression Complex ComplexAbs Concat ConcatV2 Const Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2
    CropAndResize CropAndResizeGradImage Cross Cumprod Cumsum CumulativeLogsumexp DeepCopy DenseBincount DepthToSpace
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Diag DiagPart Dilation2D
    Dilation2DBackpropFilter Dilation2DBackpropInput DrawBoundingBoxesV2 DynamicPartition DynamicStitch Einsum Empty EmptyTensorList
    EncodeJpeg EuclideanNorm ExtractGlimpse ExtractImagePatches FFT FFT2D FFT3D FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel Fill FractionalMaxPool FusedBatchNorm FusedBatchNormGrad
    FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 GatherNd GatherV2 HSVToRGB HistogramFixedWidth
    IRFFT Imag ImageProjectiveTransformV3 InTopKV2 IsFinite IsInf IsNan L2Loss LRN LRNGrad LinSpace ListDiff LogMatrixDeterminant
    LogUniformCandidateSampler LowerBound MatMul MatrixDeterminant MatrixDiagPart MatrixDiagV3 MatrixSolve MatrixTriangularSolve
    MaxPool MaxPool3D MaxPool3DGrad MaxPoolGradGrad MaxPoolV2 MaxPoolWithArgmax MirrorPad MirrorPadGrad Multinomial NoOp
    NonMaxSuppressionV3 NthElement OneHot ParallelDynamicStitch ParameterizedTruncatedNormal PopulationCount Qr
    QuantizeAndDequantizeV2 QuantizeAndDequantizeV4 RFFT RFFT2D RGBToHSV RaggedRange RandomGamma RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt Range Real ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear
    ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse ReverseSequence ReverseV2 RngReadAndSkip Roll
    SampleDistortedBoundingBoxV2 ScaleAndTranslate ScaleAndTranslateGrad ScatterNd SegmentMax SegmentMean SegmentSum
    SelfAdjointEigV2 SoftmaxCrossEntropyWithLogits SpaceToBatchND SpaceToDepth SparseSegmentMean SparseSegmentSum
    SparseSegmentSumGrad SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseMatMul SparseToDense StatefulStandardNormalV2
    StatefulUniform StatelessMultinomial StatelessRandomBinomial StatelessRandomNormal StatelessRandomNormalV2
    StatelessRandomUniform StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 StatelessRandomUniformV2
    StatelessTruncatedNormalV2 StridedSliceGrad Svd TensorListFromTensor TensorListReserve TensorListStack TensorScatterAdd
    TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate Timestamp TopKV2 TruncatedNormal Unique UniqueV2
    UniqueWithCounts UnsortedSegmentMax UnsortedSegmentSum UpperBound VarHandleOp VarIsInitializedOp Where _FusedBatchNormEx
    _FusedConv2D _FusedMatMul
"""

KNOWN = (
    FIRST_INPUT
    | BINARY
    | REDUCTIONS
    | COPY_ON_READ
    | HOST
    | HOST_INT32
    | {*ALIASES, *UPDATES}
    | _kinds(_ON_CONDITION)
    | _kinds(_OWN_OUTPUTS)
)
"""The kinds that were looked at; of any other, nothing is known, and it counts as making its outputs and no more."""
